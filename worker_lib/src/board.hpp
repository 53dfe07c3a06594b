#pragma once
// Board: writes down what the groups of this process do, where the agent can read it even after a SIGKILL. A few plain
// stores for each operation; no lock, no system call. Any thread. Without ddprun there is none, and nothing is written.

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/board_layout.hpp"
#include "common/clock.hpp"

namespace ddp::detail {

struct Operation;
struct GroupSpec;
struct Transfer;
struct TransferBatch;

/// A step in which the members of a group wait for each other at the store.
struct StoreStep {
    std::string_view what;  ///< "monitored_barrier"
    std::string_view tag;
    ddprun::Duration timeout{};
    std::uint64_t seq = 0;  ///< among these steps of its group, from 1
};

/// Where an operation stands on the board. Empty: nowhere.
class BoardTicket {
public:
    BoardTicket() = default;
    /// `slot` may be null.
    BoardTicket(ddprun::board::OperationSlot* slot, ddprun::board::GroupSlot& group, std::uint64_t id,
                std::uint64_t seq)
        : slot_(slot), group_(&group), id_(id), seq_(seq) {}

    /// The backend is at it.
    void started() const {
        if (group_ != nullptr) mark_started();
    }
    /// `timed_out`: it has ended badly, by a deadline.
    void ended(bool well, bool timed_out = false) const {
        if (group_ != nullptr) mark_ended(well, timed_out);
    }

    /// It is about to end badly, for the ranks called different things.
    void mismatched() const {
        if (group_ != nullptr) mark_mismatched();
    }

    /// The program has given its group up because of it.
    void aborted(std::string_view reason) const {
        if (group_ != nullptr) mark_aborted(reason);
    }

    /// It was never called, as far as anybody is concerned: the next one of the group has its number. Call it before
    /// that is queued.
    void refused() const {
        if (group_ != nullptr) mark_refused();
    }

    /// Somebody waits for it: `blocked` until it has ended; else looks now and then. Reads the clock once.
    void waited(bool blocked) const {
        if (group_ != nullptr) mark_waited(blocked);
    }

    /// Begun and done in the moment in which it was queued: without another look at the clock.
    void done_at_once(ddprun::TimePoint queued) const {
        if (group_ != nullptr) mark_done(queued);
    }

private:
    friend class Board;

    void mark_started() const;
    void mark_waited(bool blocked) const;
    void mark_done(ddprun::TimePoint queued) const;
    void mark_ended(bool well, bool timed_out) const;
    void mark_mismatched() const;
    void mark_aborted(std::string_view reason) const;
    void mark_refused() const;
    [[nodiscard]] bool has_slot() const { return slot_ != nullptr && slot_->id.load(std::memory_order_relaxed) == id_; }

    ddprun::board::OperationSlot* slot_ = nullptr;
    ddprun::board::GroupSlot* group_ = nullptr;
    std::uint64_t id_ = 0;
    std::uint64_t seq_ = 0;  ///< 0: a send or receive, which is no step of the group's
};

/// A place for an operation that is about to be written down. What follows needs no locked instruction: those wait for
/// all stores before them, also for what peers are to see first.
struct BoardClaim {
    ddprun::board::OperationSlot* slot = nullptr;  ///< null: there is none for it
    std::uint64_t id = 0;
};

/// Where a group stands. Empty: nowhere.
struct BoardGroup {
    ddprun::board::GroupSlot* slot = nullptr;
    std::uint32_t id = 0;
    bool hidden = false;  ///< there was no place for it
};

class Board {
public:
    /// Of memory that take_board() has given, or a new one; it outlives this object.
    explicit Board(ddprun::board::Board& memory) : memory_(memory) {}

    /// The place of a new group, under its own name unless one is given; `hidden` when there is none left.
    [[nodiscard]] BoardGroup add(const GroupSpec& spec, std::string_view name = {});
    /// The group is gone; its place is taken when others need it.
    void remove(const BoardGroup& group);
    /// Until queue() with it, readers see what is not there yet as missing.
    [[nodiscard]] BoardClaim claim();
    [[nodiscard]] BoardTicket queue(const Operation& operation, const BoardClaim& claim, const BoardGroup& group,
                                    ddprun::TimePoint now);
    /// The same for each transfer of a batch, which gets its ticket.
    void claim(TransferBatch& batch, const BoardGroup& group);
    /// They begin at once.
    static void queue(TransferBatch& batch, const BoardGroup& group, ddprun::TimePoint now);
    /// A step that the group takes at the store.
    [[nodiscard]] BoardTicket queue(const StoreStep& step, const BoardGroup& group, ddprun::TimePoint now);
    /// The program has given the group up. The first call counts.
    void abort(std::string_view reason, const BoardGroup& group);
    /// The program lets go of the group, which has not failed.
    static void leave(bool by_exception, const BoardGroup& group);
    /// A message that has come from a rank of whose messages another one is waited for: `receive` is on the board for
    /// that. Until it is asked for. `sent`: one transfer in the words of its sender, but `peer`.
    [[nodiscard]] BoardTicket note_arrival(const TransferBatch& sent, const BoardTicket& receive);
    /// The same of a message that has come for `receive` and does not fit it.
    void note_misfit(const TransferBatch& sent, const BoardTicket& receive);
    void set_phase(std::string_view text);

private:
    static void write(const BoardClaim& claim, ddprun::board::Operation& entry);
    static void write(const BoardClaim& claim, const TransferBatch& batch, const Transfer& transfer,
                      std::string_view op, const BoardGroup& group, ddprun::TimePoint now);

    ddprun::board::Board& memory_;
    std::mutex mutex_;  ///< of groups, aborts and phase
    std::uint32_t groups_ = 0;
};

/// The one that the agent handed to this process, by DDPRUN_BOARD_FD; taken at the first call. Null: there is none, or
/// it belongs to another process, or this is a fork of the one that it belongs to.
[[nodiscard]] Board* process_board();

/// Takes the board behind `descriptor`; null, with the reason in `problem`, when it is no board, or another process
/// writes it. For process_board() and tests.
[[nodiscard]] ddprun::board::Board* take_board(int descriptor, std::string& problem);

/// A group's place on the board, for as long as this object lives.
class BoardPlace {
public:
    explicit BoardPlace(const GroupSpec& spec, std::string_view name = {});
    ~BoardPlace();
    BoardPlace(const BoardPlace&) = delete;
    BoardPlace& operator=(const BoardPlace&) = delete;

    /// Whether there is a board at all, so that somebody will read the times.
    [[nodiscard]] bool is_written() const { return board_ != nullptr; }
    /// Empty where nothing is written. queue() has to follow.
    [[nodiscard]] BoardClaim claim() { return may_write() && group_.slot != nullptr ? board_->claim() : BoardClaim(); }
    [[nodiscard]] BoardTicket queue(const Operation& operation, const BoardClaim& claim, ddprun::TimePoint now);
    /// The same for each transfer of a batch, whose tickets they are.
    void claim(TransferBatch& batch);
    void queue(TransferBatch& batch, ddprun::TimePoint now);
    [[nodiscard]] BoardTicket queue(const StoreStep& step, ddprun::TimePoint now);
    void abort(std::string_view reason);
    void leave(bool by_exception);

private:
    [[nodiscard]] bool may_write() const;

    Board* const board_;
    const BoardGroup group_;
};

}  // namespace ddp::detail
