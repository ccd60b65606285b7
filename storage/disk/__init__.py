"""The operating system's part: files, descriptors, room, trash."""
