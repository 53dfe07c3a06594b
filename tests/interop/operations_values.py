"""Operations on single keys: set, get, add, compare_set, delete_key, num_keys, prefixes."""

from datetime import timedelta

import torch.distributed as dist
from operation import SHORT, attempt, later, operation, together

# ---- single values


@operation()
def values_of_every_size(open):
    store = open()
    for size in (0, 1, 7, 1439, 1440, 1441, 65535, 65536, 1 << 20, 8 << 20):
        value = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        store.set("key", value)
        assert store.get("key") == value, f"{size} bytes came back as others"
    return "all"


@operation(differs={"libuv": "values above 8 MiB are refused there; our limit is 64 MiB and can be set"})
def a_value_above_eight_mebibytes(open):
    value = b"v" * ((8 << 20) + 1)
    store = open()
    store.set("key", value)
    return attempt(store.get, "key") == value


@operation()
def text_values_and_odd_keys(open):
    store = open()
    keys = ["", "/", "//", "-key", "with space", "ümlaut", "new\nline", "init/", "k" * 8191]
    for number, key in enumerate(keys):
        store.set(key, f"välue {number}")
    return [store.get(key) for key in keys], store.num_keys()


@operation(differs={"legacy": "it has no limits; ours for keys is 8 KiB, as in the libuv server, and can be set"})
def a_key_above_eight_kibibytes(open):
    return attempt(open().add, "k" * 8192, 1)


@operation()
def the_last_set_counts(open):
    store, other = open(), open()
    for value in ("1", "", "three"):
        store.set("key", value)
    store.get("key")  # there is no answer to a set: this one says that all were served
    return other.get("key")


@operation()
def deleting(open):
    store = open()
    store.set("key", "value")
    found = [store.delete_key("key"), store.delete_key("key"), store.delete_key("never there")]
    return found, attempt(store.wait, ["key"], SHORT), store.num_keys()


@operation()
def counting_keys(open):
    store = open()
    counts = [store.num_keys()]
    for key in "abc":
        store.add(key, 1)
        counts.append(store.num_keys())
    return counts, dist.PrefixStore("p", store).num_keys()


@operation()
def a_client_of_a_known_world_is_counted(open):
    first, second = open(world_size=2), open(world_size=2)
    return second.num_keys(), first.delete_key("anything"), second.num_keys()


@operation()
def what_the_client_says_about_itself(open):
    store = open()
    store.set_timeout(timedelta(seconds=7))
    return store.timeout, store.host


# ---- counters


@operation()
def adding(open):
    store = open()
    sums = [store.add("n", amount) for amount in (5, -7, 0, 2**31, -(2**40))]
    return sums, store.get("n"), store.add("fresh", 0), store.get("fresh")


@operation()
def adding_wraps_around(open):
    store = open()
    return store.add("n", 2**63 - 1), store.add("n", 1), store.get("n")


@operation()
def adding_to_text(open):
    store = open()
    texts = ["41", " +7", "\t-3", "12abc", "007", "-0", "9223372036854775807"]
    for number, text in enumerate(texts):
        store.set(f"n{number}", text)
    return [(store.add(f"n{number}", 1), store.get(f"n{number}")) for number in range(len(texts))]


@operation()
def adding_to_what_is_no_number(open):
    other = open()
    answers = []
    for text in ("abc", "", "9223372036854775808", "+"):
        other.set("n", text)
        other.get("n")
        answers.append((attempt(open().add, "n", 1), other.get("n")))
    return answers


@operation()
def many_clients_add_at_once(open):
    clients = [open() for _ in range(8)]
    together(*[lambda client=client: [client.add("n", 1) for _ in range(200)] for client in clients])
    return clients[0].add("n", 0)


# ---- compare and set


@operation()
def compare_set_of_every_kind(open):
    store = open()
    answers = [
        store.compare_set("missing", "old", "new"),
        store.num_keys(),
        store.compare_set("created", "", "v1"),
        store.compare_set("created", "x", "v2"),
        store.compare_set("created", "", "v2"),
        store.compare_set("created", "v1", "v2"),
        store.compare_set("created", "v2", ""),
        store.compare_set("created", "", "again"),
        store.compare_set("both empty", "", ""),
    ]
    return answers, store.get("created"), store.get("both empty"), store.num_keys()


@operation()
def compare_set_has_one_winner(open):
    clients = [open() for _ in range(6)]
    answers = together(*[lambda c=c, n=n: c.compare_set("lock", "", f"{n}") for n, c in enumerate(clients)])
    winner = clients[0].get("lock")
    return len(set(answers)) == 1 and answers[0] == winner


@operation(differs={"legacy": "it wakes nobody when COMPARE_SET creates a key, a defect"})
def compare_set_wakes_who_waits(open):
    waiting, other = open(), open()
    return together(lambda: waiting.wait(["key"], timedelta(seconds=1)), later(other.compare_set, "key", "", "v"))


@operation(differs={"libuv": "it wakes those who wait for a missing key although nothing was stored"})
def compare_set_that_stores_nothing_wakes_nobody(open):
    waiting, other = open(), open()
    return together(lambda: waiting.wait(["key"], timedelta(seconds=1)), later(other.compare_set, "key", "x", "v"))


# ---- prefixes


@operation()
def prefixes_nest_and_keep_apart(open):
    store = open()
    inner = dist.PrefixStore("inner", dist.PrefixStore("outer", store))
    sibling = dist.PrefixStore("sibling", store)
    inner.set("k", "inner")
    sibling.set("k", "sibling")
    answers = [inner.get("k"), sibling.get("k"), store.get("outer/inner/k"), inner.add("n", 4), sibling.add("n", 5)]
    answers += [inner.compare_set("k", "inner", "new"), store.get("outer/inner/k"), inner.wait(["k", "n"])]
    answers += [attempt(sibling.wait, ["never"], SHORT), inner.delete_key("k"), store.num_keys()]
    inner.set_timeout(timedelta(seconds=9))
    return answers, store.timeout, inner.underlying_store is not None
