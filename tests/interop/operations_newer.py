"""Operations that PyTorch got since 2.1: several keys at once, queues, list_keys, barrier."""

import time
from datetime import timedelta

import torch.distributed as dist
from operation import LONG, SHORT, attempt, later, operation, together

# ---- since 2.1: append and several keys at once


@operation(needs="append")
def appending(open):
    store, other = open(), open()
    store.append("log", "one")
    store.append("log", "")
    store.append("log", ",two")
    woken = together(lambda: other.get("log2"), later(store.append, "log2", "x"))
    return store.get("log"), woken, store.num_keys()


@operation(needs="multi_set")
def several_keys_at_once(open):
    store, other = open(), open()
    keys = [f"key{n}" for n in range(300)]
    store.multi_set(keys, [f"value {n}" * (n % 7) for n in range(300)])
    store.multi_set([], [])
    store.multi_set(["twice", "twice"], ["1", "2"])
    return (
        store.multi_get(keys[::-1]),
        other.multi_get(["twice", "key1", "twice"]),
        store.multi_get([]),
        store.num_keys(),
    )


@operation(needs="multi_get")
def multi_get_waits_for_all(open):
    waiting, other = open(), open()
    woken = together(lambda: waiting.multi_get(["a", "b"]), later(other.multi_set, ["b", "a"], ["2", "1"]))
    waiting.set_timeout(SHORT)
    return woken, attempt(waiting.multi_get, ["a", "never"])


@operation(needs="has_extended_api")
def the_extended_api_is_there(open):
    return open().has_extended_api()


@operation(needs="clone")
def a_clone_is_a_connection_of_its_own(open):
    store = open()
    clone = store.clone()
    woken = together(lambda: store.get("key"), later(clone.set, "key", "from the clone"))
    prefixed = dist.PrefixStore("p", store).clone()
    prefixed.set("k", "v")
    return woken, store.get("p/k"), clone.num_keys()


# ---- since 2.8: queues

NO_QUEUES = ["legacy"]


@operation(needs="queue_push", absent=NO_QUEUES)
def a_queue_is_first_in_first_out(open):
    store, other = open(), open()
    lengths = [store.queue_len("q")]
    for element in ("a", "", "c" * 100_000):
        store.queue_push("q", element)
        lengths.append(store.queue_len("q"))
    popped = [other.queue_pop("q"), store.queue_pop("q"), other.queue_pop("q", False)]
    return lengths, popped, store.queue_len("q")


@operation(needs="queue_push", absent=NO_QUEUES)
def popping_an_empty_queue(open):
    store = open()
    store.set_timeout(SHORT)
    at_once = attempt(store.queue_pop, "q", False)
    blocked = attempt(store.queue_pop, "q")
    store.set_timeout(LONG)
    return "empty" in str(at_once).lower() or at_once, blocked, store.queue_len("q")


@operation(needs="queue_push", absent=NO_QUEUES)
def who_waits_longest_pops_first(open):
    first, second, other = open(), open(), open()

    def push():
        time.sleep(0.4)
        other.queue_push("q", "1")
        time.sleep(0.2)
        other.queue_push("q", "2")
        return other.queue_len("other queue")

    def second_in_line():
        time.sleep(0.2)
        return second.queue_pop("q")

    return together(lambda: first.queue_pop("q"), second_in_line, push)


@operation(needs="queue_push", absent=NO_QUEUES)
def queues_and_keys_are_apart(open):
    store = open()
    store.set("name", "value")
    store.queue_push("name", "element")
    store.queue_push("only queue", "element")
    answers = [store.num_keys(), store.get("name"), store.check(["only queue"]), store.wait(["only queue"], LONG)]
    answers += [
        store.delete_key("only queue"),
        store.queue_len("only queue"),
        store.queue_pop("name"),
        store.get("name"),
    ]
    return answers


@operation(needs="queue_push", absent=NO_QUEUES)
def a_wait_counts_a_queue(open):
    waiting, other = open(), open()
    return together(
        lambda: waiting.wait(["q", "key"], LONG), later(other.queue_push, "q", "1"), later(other.set, "key", "1")
    )


@operation(
    needs="queue_push", absent=NO_QUEUES, differs={"libuv": "it does not count a queue that already has elements"}
)
def a_wait_counts_a_queue_that_is_there(open):
    waiting, other = open(), open()
    other.queue_push("q", "1")
    assert other.queue_len("q") == 1
    return together(lambda: waiting.wait(["q", "key"], timedelta(seconds=1)), later(other.set, "key", "1"))


# ---- since 2.10 and 2.12


@operation(needs="list_keys")
def listing_keys(open):
    store = open(world_size=1)
    empty = store.list_keys()
    for key in ("b", "a", "", "/"):
        store.set(key, "")
    prefixed = dist.PrefixStore("p", store)
    prefixed.set("inside", "")
    return empty, sorted(store.list_keys()), attempt(lambda: sorted(prefixed.list_keys()))


@operation(needs="barrier")
def a_barrier_releases_all_at_the_last(open):
    clients = [open() for _ in range(4)]
    released = together(*[lambda c=c: c.barrier("b", 4, LONG) for c in clients])
    return released, clients[0].get("b"), clients[0].barrier("b", 4, LONG), clients[0].barrier("alone", 1)


@operation(needs="barrier")
def who_gives_up_at_a_barrier_stays_counted(open):
    store, other = open(), open()
    gave_up = attempt(store.barrier, "b", 2, SHORT)
    return gave_up, store.num_keys(), other.barrier("b", 2, LONG), store.add("b", 0)


@operation(needs="barrier")
def a_barrier_on_what_is_no_number(open):
    store, other = open(), open()
    store.set("b", "text")
    store.get("b")
    return attempt(other.barrier, "b", 2, SHORT), store.get("b")
