"""What drivers of arms on a network share: cyclic datagrams with deadlines, and a relay that makes networks bad."""
