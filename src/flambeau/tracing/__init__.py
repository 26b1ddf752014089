"""What a program did, and when: the notes behind the profiler. See README.md."""
