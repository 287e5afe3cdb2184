"""Treatment: change a step, prove that it computes the same and is faster, keep what helped."""
