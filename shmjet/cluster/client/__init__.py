"""The client side: instances, jobs and executions as a program sees them, and its connections to members."""
