"""Standbys on other machines, which have everything that was confirmed and take over."""
