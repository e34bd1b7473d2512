"""What a text claims, and whether trusted facts say otherwise: rules for English and Spanish, no model. Pure."""
