# ROS 2 with this suite built in: docker build -t sysid_ros . ; docker run --rm -it sysid_ros
# Written for machines with Docker; it has never been built by us. What it runs (rosdep, pip, colcon) is what README.md says.
ARG DISTRIBUTION=jazzy
FROM ros:${DISTRIBUTION}-ros-base AS dependencies
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /ws
COPY package.xml requirements-ros.txt src/sysid_ros/
COPY sysid_msgs/package.xml src/sysid_msgs/
RUN apt-get update && rosdep update --rosdistro "$ROS_DISTRO" \
 && apt-get install -y --no-install-recommends python3-pip \
 && rosdep install --from-paths src --ignore-src -y --skip-keys rviz2 \
 && pip install --break-system-packages --no-cache-dir -r src/sysid_ros/requirements-ros.txt \
 && rm -rf src /var/lib/apt/lists/*

FROM dependencies
COPY . src/sysid_ros
RUN ln -s sysid_ros/sysid_msgs src/sysid_msgs \
 && source "/opt/ros/$ROS_DISTRO/setup.bash" && colcon build \
 && printf '#!/bin/bash\nsource /ws/install/setup.bash\nexec "$@"\n' > /entrypoint && chmod +x /entrypoint
ENTRYPOINT ["/entrypoint"]
CMD ["ros2", "launch", "sysid_ros", "identify.launch.py", "mode:=mock"]
