//! One supervised tree of actors: child specs, restart budgets, tracked tasks, inspection.
