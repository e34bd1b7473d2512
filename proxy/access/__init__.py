"""Who may use Penstock, and how much."""
