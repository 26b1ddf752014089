"""MPI, the engine that moves bytes between CPUs: started, connected and waited for here."""
