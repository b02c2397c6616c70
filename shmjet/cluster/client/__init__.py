"""What a program uses: instances, jobs and executions as a client sees them, and its connections to members."""
