"""What a machine is: parts, wires, routes, and what cannot exist."""
