"""What has to be on the disk before promises may be kept."""
