"""Access to the disk: files, file descriptors, free space, trash."""
