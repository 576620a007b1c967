"""The identifiability node without an arm of its own: whatever is on ``robot_description``."""

from node_bench import Bench
from scara_urdf import SCARA
from std_msgs.msg import String

from sysid_msgs.msg import IdentifiabilityReport
from sysid_msgs.srv import AnalyzeIdentifiability
from sysid_ros.nodes.identifiability import IdentifiabilityNode
from sysid_ros.ros import qos


def test_without_a_model_any_robot_will_do():
    bench = Bench("-p", "model:=''")
    try:
        bench.run(IdentifiabilityNode())
        bench.node.create_publisher(String, "robot_description", qos.LATCHED).publish(String(data=SCARA))
        report = bench.listen(IdentifiabilityReport, "identifiability/structure", qos.LATCHED).wait()
        assert len(report.base_parameters) == 8
        request = AnalyzeIdentifiability.Request(method=AnalyzeIdentifiability.Request.DATA)
        refused = bench.call(AnalyzeIdentifiability, "identifiability/analyze", request)
        assert not refused.success and "parameter 'model'" in refused.message
    finally:
        bench.close()
