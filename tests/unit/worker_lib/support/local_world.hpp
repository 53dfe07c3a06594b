#pragma once
// A world whose ranks are threads of the test: the real native backend, with real shared memory and sockets, over a
// store in memory. Ranks may be spread over emulated nodes, which then talk TCP over loopback.
//
//     const auto sums = run_ranks({.ranks_per_node = {3, 1}}, [](ddp::Context& context) { …; return sum; });
//     CHECK(sums == std::vector<int>{…});          // by rank; the ranks' threads themselves must not assert

#include <chrono>
#include <exception>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/context.hpp"
#include "worker_lib/src/bootstrap/local_store.hpp"

namespace ddp::testing {

struct LocalWorld {
    std::vector<int> ranks_per_node = {1};
    std::chrono::milliseconds timeout{30'000};  ///< of every collective
    std::chrono::milliseconds init_timeout{30'000};
    std::string session;  ///< of ddprun; empty: of no launcher
    std::int64_t generation = 0;
    std::string secret;  ///< of the ranks; empty: they have none

    [[nodiscard]] int size() const { return std::accumulate(ranks_per_node.begin(), ranks_per_node.end(), 0); }

    [[nodiscard]] Environment environment(int rank) const {
        Environment environment;
        environment.session = session;
        environment.generation = generation;
        environment.secret = secret;
        environment.rank = environment.local_rank = rank;
        environment.world_size = size();
        while (environment.local_rank >= ranks_per_node.at(static_cast<std::size_t>(environment.node_rank))) {
            environment.local_rank -= ranks_per_node[static_cast<std::size_t>(environment.node_rank++)];
        }
        environment.local_world_size = ranks_per_node[static_cast<std::size_t>(environment.node_rank)];
        return environment;
    }

    [[nodiscard]] InitOptions options() const {
        InitOptions options;
        options.backend = Backend::Native;
        options.timeout = timeout;
        options.init_timeout = init_timeout;
        return options;
    }
};

/// The outcome of a rank's thread: a value or an exception.
template <typename T>
struct Outcome {
    using Value = T;
    std::optional<T> value;
    std::exception_ptr error;

    /// Nothing after success. Errors of other types are rethrown.
    [[nodiscard]] std::optional<Error> ddp_error() const {
        if (!error) return std::nullopt;
        try {
            std::rethrow_exception(error);
        } catch (const Error& caught) {
            return caught;
        }
    }
    [[nodiscard]] std::string text() const {
        const auto caught = ddp_error();
        return caught ? caught->what() : "";
    }
};

/// Runs `body(Context&)` on every rank. Returns what each returned or threw, by rank; true for a body that returns
/// void. The bodies begin together: deadlines of some tenths of a second are counted from the same moment, however long
/// some rank's start took on a busy machine.
template <typename Body>
auto try_ranks(const LocalWorld& world, const std::shared_ptr<Store>& store, Body body) {
    using Returned = std::invoke_result_t<Body&, Context&>;
    using Value = std::conditional_t<std::is_void_v<Returned>, bool, Returned>;
    std::latch all_are_there(world.size());
    const auto start = [&](int rank) {
        try {
            return Context(world.environment(rank), store, world.options());
        } catch (...) {
            all_are_there.count_down();  // even without a Context
            throw;
        }
    };
    std::vector<std::future<Value>> threads;
    for (int rank = 0; rank < world.size(); ++rank) {
        threads.push_back(std::async(std::launch::async, [&start, &all_are_there, &body, rank]() -> Value {
            Context context = start(rank);
            all_are_there.arrive_and_wait();
            if constexpr (std::is_void_v<Returned>) {
                body(context);
                return true;
            } else {
                return body(context);
            }
        }));
    }
    std::vector<Outcome<Value>> outcomes;
    for (auto& thread : threads) {
        Outcome<Value>& outcome = outcomes.emplace_back();
        try {
            outcome.value = thread.get();
        } catch (...) {
            outcome.error = std::current_exception();
        }
    }
    return outcomes;
}

template <typename Body>
auto try_ranks(const LocalWorld& world, Body body) {
    return try_ranks(world, detail::make_local_store(), std::move(body));
}

/// Does the same, but returns the values by rank and rethrows the first error.
template <typename Body>
auto run_ranks(const LocalWorld& world, const std::shared_ptr<Store>& store, Body body) {
    auto outcomes = try_ranks(world, store, std::move(body));
    std::vector<typename decltype(outcomes)::value_type::Value> values;
    for (auto& outcome : outcomes) {
        if (outcome.error) std::rethrow_exception(outcome.error);
        values.push_back(std::move(*outcome.value));
    }
    return values;
}

template <typename Body>
auto run_ranks(const LocalWorld& world, Body body) {
    return run_ranks(world, detail::make_local_store(), std::move(body));
}

}  // namespace ddp::testing
