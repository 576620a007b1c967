"""Free-floating robots: their mathematics, simulation, nodes and reports; a wing that no arm needs."""
