"""The cases by name: (name, function, deadline in seconds). The longest come first."""

import agents
import differential
import ranks


def all_cases():
    return [*differential.comparisons(), *agents.runs(), *ranks.jobs()]
