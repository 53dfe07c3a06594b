// The engine when memory runs out: at each allocation of each request in turn. Every released connection is notified,
// and the counts of stored bytes stay right. A program of its own, for it replaces the allocator.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "rendezvous/store/engine/engine.hpp"
#include "tests/catch.hpp"

namespace {

int allocations_left = -1;  ///< below 0: any number

bool refuses() {
    if (allocations_left < 0) return false;
    if (allocations_left == 0) return true;
    --allocations_left;
    return false;
}

}  // namespace

// What the store itself asks malloc for, by the linker's --wrap; and all that goes through operator new.
extern "C" {
void* __real_malloc(std::size_t bytes);
void* __real_realloc(void* memory, std::size_t bytes);
void* __wrap_malloc(std::size_t bytes) { return refuses() ? nullptr : __real_malloc(bytes); }
void* __wrap_realloc(void* memory, std::size_t bytes) { return refuses() ? nullptr : __real_realloc(memory, bytes); }
}

void* operator new(std::size_t bytes) {
    if (void* const memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes > 0 ? bytes : 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ddprun::store::test {
namespace {

constexpr std::uint64_t kWaiting = 20;
constexpr ConnectionId kCaller{1000};

const std::string kSmall(100, 's');
const std::string kLarge(kLargeBytes + 1, 'L');
const std::vector<std::string_view> kNames{"/x", "/y"};
const std::vector<std::string_view> kValues{kSmall, kLarge};

/// A store with values, a queue, and connections that wait for /x and for one more key each.
struct Store {
    Store() {
        const std::string whole(kLargeBytes - 50, 'v');  // becomes a large value when it is appended to
        serve({.kind = RequestKind::kSet, .key = "/small", .value = whole});
        serve({.kind = RequestKind::kSet, .key = "/large", .value = kLarge});
        serve({.kind = RequestKind::kGet, .key = "/large"});  // a reply under way shares it
        serve({.kind = RequestKind::kQueuePush, .key = "/q", .value = kLarge});
        for (std::uint64_t i = 0; i < kWaiting; ++i) {
            const std::vector<std::string_view> keys{"/x"};
            REQUIRE(engine.apply(ConnectionId{i}, {.kind = RequestKind::kWait, .keys = keys}, reply).has_value());
        }
    }
    void serve(const Request& request) { REQUIRE(engine.apply(kCaller, request, reply).has_value()); }

    BlockMemory memory;
    Engine engine{Limits{}, {}, &memory};
    Reply reply;
};

/// Returns how many connections are released. `failed`: memory ran out.
std::size_t told(Engine& engine, const Request& request, Reply& reply, bool& failed) {
    bool served = false;
    try {
        served = engine.apply(kCaller, request, reply).has_value();
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    allocations_left = -1;
    CHECK(served != failed);
    return engine.released().size();
}

TEST_CASE(
    "out of memory: at any allocation of any request, no connection waits for a key that is there, and nothing is "
    "miscounted") {
    const auto [kind, key, value] = GENERATE(table<RequestKind, std::string, std::string>({
        {RequestKind::kSet, "/x", kSmall},
        {RequestKind::kSet, "/x", kLarge},
        {RequestKind::kSet, "/large", kSmall},
        {RequestKind::kCompareSet, "/x", kSmall},
        {RequestKind::kCompareSet, "/x", kLarge},
        {RequestKind::kAdd, "/x", ""},
        {RequestKind::kAppend, "/x", kSmall},
        {RequestKind::kAppend, "/small", kSmall},
        {RequestKind::kAppend, "/large", kSmall},
        {RequestKind::kAppend, "/large", kLarge},
        {RequestKind::kMultiSet, "", ""},
        {RequestKind::kMultiGet, "", ""},
        {RequestKind::kQueuePush, "/x", kSmall},
        {RequestKind::kQueuePush, "/x", kLarge},
        {RequestKind::kQueuePop, "/q", ""},
        {RequestKind::kListKeys, "", ""},
        {RequestKind::kBarrier, "/x", ""},
        {RequestKind::kBarrier, "/b", ""},
        {RequestKind::kWait, "", ""},
        {RequestKind::kDeleteKey, "/large", ""},
    }));
    CAPTURE(kind, key, value.size());
    bool failed = true;
    for (int allocations = 0; failed; ++allocations) {
        CAPTURE(allocations);
        REQUIRE(allocations < 100);
        failed = false;
        Store store;
        const Request request{
            .kind = kind, .key = key, .value = value, .number = key == "/b" ? 2 : 1, .keys = kNames, .values = kValues};
        allocations_left = allocations;
        const std::size_t released = told(store.engine, request, store.reply, failed);
        store.engine.forget(kCaller);
        Reply there;
        const std::vector<std::string_view> x{"/x"};
        REQUIRE(store.engine.apply(kCaller, {.kind = RequestKind::kCheck, .keys = x}, there).has_value());
        const bool present = there.text()[0] == 0;
        const bool one = kind == RequestKind::kQueuePush;  // releases one only
        CHECK(released == (!present ? 0 : one ? 1 : kWaiting));
        CHECK(store.engine.waiter_count() == kWaiting - released);

        for (std::uint64_t i = 0; i < kWaiting; ++i) store.engine.forget(ConnectionId{i});
        for (const char* name : {"/small", "/large", "/x", "/y", "/b"})
            store.serve({.kind = RequestKind::kDeleteKey, .key = name});
        for (const char* name : {"/q", "/q", "/x"}) store.serve({.kind = RequestKind::kQueuePop, .key = name});
        store.reply = {};
        CHECK(store.engine.bytes() == 0);
        CHECK(store.engine.block_bytes() == 0);
        CHECK(store.memory.bytes == 0);
    }
}

}  // namespace
}  // namespace ddprun::store::test
