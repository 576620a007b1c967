"""What every package of the core uses: errors, boxes, rotations."""
