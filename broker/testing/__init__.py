"""What a test can do with a broker inside its process: its ports, its clock, looking into it, faults."""
