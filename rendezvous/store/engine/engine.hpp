#pragma once
// Engine: owns the content of one store and the waits of its connections, and counts the bytes that both take against
// Limits::store_bytes. It takes one request at a time, and produces
// its reply and the list of connections whose WAIT or BARRIER has ended. RequestService answers those. Pure: no socket,
// no clock, no log. It knows connections by number only, and no dialects. Single owner.

#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/error.hpp"
#include "rendezvous/store/codec/block.hpp"
#include "rendezvous/store/codec/limits.hpp"
#include "rendezvous/store/codec/reply.hpp"
#include "rendezvous/store/codec/request.hpp"
#include "rendezvous/store/engine/table.hpp"
#include "rendezvous/store/engine/waits.hpp"

namespace ddprun::store {

class Engine {
public:
    /// `block_memory`, which outlives it and all replies, counts the blocks that it makes (null: they are not counted).
    explicit Engine(const Limits& limits, const HashSeed& seed = {}, BlockMemory* block_memory = nullptr)
        : limits_(limits), block_memory_(block_memory), table_(seed), queues_(0, SeededHash{seed}), waits_(seed) {}

    /// Serves a request of `from` and appends the reply, if one is due now, to `reply`. The connections in released()
    /// are to be notified then, whatever the result. Errors: kMalformed (the value is not a number) and kLimit; `from`
    /// is then to be closed, and nothing was stored or replied. When it throws std::bad_alloc `from` is to be closed
    /// too; nothing was stored, or all of it, or the first pairs of a MULTI_SET.
    [[nodiscard]] Result<void> apply(ConnectionId from, const Request& request, Reply& reply);
    /// Returns the connections to which wire::kStopWaiting is to be sent; never the `from` of the request. Valid until
    /// the next request, or forget_released().
    [[nodiscard]] std::span<const ConnectionId> released() const { return waits_.released(); }
    void forget_released() { waits_.forget_released(); }

    /// Ends the wait of a connection that is closed.
    void forget(ConnectionId connection) { waits_.forget(connection); }

    [[nodiscard]] std::size_t key_count() const { return table_.size(); }
    [[nodiscard]] std::size_t waiter_count() const { return waits_.size(); }
    /// Returns the bytes that Limits::store_bytes bounds: keys, values, queues and awaited names, with an allowance for
    /// each.
    [[nodiscard]] std::size_t bytes() const { return stored_bytes_ + waits_.bytes(); }
    /// Returns the memory of the stored blocks, with their room to grow: the store's part of BlockMemory::bytes.
    [[nodiscard]] std::size_t block_bytes() const { return block_bytes_; }

private:
    struct Element {
        std::string small;
        Block large;  ///< instead of `small` when it is not empty
        [[nodiscard]] std::size_t size() const { return small.size() + large.size(); }
    };
    using Queue = std::list<Element>;

    [[nodiscard]] Result<void> set(std::string_view key, std::string_view value, Block* block);
    [[nodiscard]] Result<void> compare_set(const Request& request, Reply& reply);
    [[nodiscard]] Result<void> add(std::string_view key, std::int64_t amount, Reply& reply);
    [[nodiscard]] Result<void> append(const Request& request);
    [[nodiscard]] Result<void> multi_set(const Request& request);
    [[nodiscard]] Result<void> wait(ConnectionId from, const Request& request, Reply& reply);
    [[nodiscard]] Result<void> barrier(ConnectionId from, const Request& request, Reply& reply);
    [[nodiscard]] Result<void> push(const Request& request);
    [[nodiscard]] Result<void> multi_get(const Request& request, Reply& reply) const;
    [[nodiscard]] Result<void> list_keys(Reply& reply) const;
    void pop(std::string_view name, Reply& reply);
    [[nodiscard]] bool erase(std::string_view key);

    /// Stores without releasing a wait. `block`: null, or the value itself, which is then taken. Errors: kLimit.
    [[nodiscard]] Result<void> store(Table::Slot slot, std::string_view key, std::string_view value, Block* block);
    /// Returns the value, if it is large, as a block to keep; otherwise an empty block.
    [[nodiscard]] Block keep(std::string_view value, Block* block);
    /// Returns the counter at `slot` plus `amount`, wrapping around; stores nothing. Errors: kMalformed.
    [[nodiscard]] static Result<std::int64_t> sum_of(const Table::Slot& slot, std::int64_t amount);
    [[nodiscard]] bool present(std::string_view name) const;
    [[nodiscard]] Result<void> check_room(std::size_t more_keys, std::size_t more_bytes) const;
    [[nodiscard]] Result<void> check_waiters(std::size_t more) const;
    /// The growth of the store when `slot` gets a value of that size.
    struct Growth {
        std::size_t keys;
        std::size_t bytes;
    };
    [[nodiscard]] static Growth growth(const Table::Slot& slot, std::string_view key, std::size_t value_bytes);

    Limits limits_;
    BlockMemory* block_memory_;
    Table table_;
    std::unordered_map<std::string, Queue, SeededHash, std::equal_to<>> queues_;  ///< no empty ones
    std::size_t element_count_ = 0;
    Waits waits_;
    std::size_t stored_bytes_ = 0;
    std::size_t block_bytes_ = 0;
};

/// The allowance for a key beside its own bytes and its value's; for an element of a queue, beside its own and its
/// queue's name.
inline constexpr std::size_t kEntryBytes = 64;
inline constexpr std::size_t kElementBytes = 224;

}  // namespace ddprun::store
