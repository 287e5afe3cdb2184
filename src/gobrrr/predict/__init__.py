"""What a step would take elsewhere, or otherwise: a time model from first principles, in no need of a device."""
