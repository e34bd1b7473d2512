"""Replaying conversations."""
