"""The cases by name: (name, function, deadline in seconds). The longest come first."""

import agents
import differential
import random_sequences
import ranks
import settings


def all_cases():
    return [*differential.comparisons(), *agents.runs(), *random_sequences.runs(), *ranks.jobs(), *settings.runs()]
