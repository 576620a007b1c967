"""The SCARA of RPNA tables 4 and 5 as a URDF, and its rotors."""

SCARA = """
<robot name="scara">
  <link name="base"/>
  {links}
  <joint name="j1" type="revolute"><parent link="base"/><child link="l1"/>{axis}{limit}</joint>
  <joint name="j2" type="revolute"><parent link="l1"/><child link="l2"/><origin xyz="0.1 0 0"/>{axis}{limit}</joint>
  <joint name="j3" type="prismatic"><parent link="l2"/><child link="l3"/><origin xyz="0.2 0 0"/>{axis}{limit}</joint>
  <joint name="j4" type="revolute"><parent link="l3"/><child link="l4"/>{axis}{limit}</joint>
</robot>
""".format(
    axis='<axis xyz="0 0 1"/>',
    limit='<limit lower="-1" upper="1" effort="9" velocity="2"/>',
    links="".join(
        f'<link name="l{k}"><inertial><mass value="1"/>'
        '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>'
        for k in range(1, 5)
    ),
)
ROTORS = "rotors: {j1: {gear_ratio: 100}, j2: {gear_ratio: 100}, j3: {gear_ratio: 100}, j4: {gear_ratio: 100}}"
