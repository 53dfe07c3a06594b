#pragma once
// Derives the destinations of one output stream from the settings of a node. Used for the routes of workers, and where
// a message depends on what the console shows. Pure.

#include <optional>

#include "agent/config/agent_config.hpp"
#include "common/ids.hpp"
#include "common/stream_code.hpp"

namespace ddprun::agent {

/// The destinations of one stream of one worker.
struct Destinations {
    bool console = false;
    bool labelled = false;    ///< console lines have a label
    bool file = false;        ///< a file of this rank
    bool own_file = false;    ///< … which the worker writes itself, because nothing else gets the stream
    bool duplicates = false;  ///< lines that match a filter also go to the file of all ranks
    friend bool operator==(const Destinations&, const Destinations&) = default;
};

/// Returns the destinations of `stream`, one stream, of the worker with this local rank. As in torchrun, a stream that
/// is redirected and tee'd is tee'd. `job_rank`: its rank; nullopt: it is not known yet, and excludes nothing.
[[nodiscard]] Destinations destinations_of(const OutputConfig& output, LocalRank rank, StreamCode stream,
                                           std::optional<Rank> job_rank = std::nullopt);

/// Returns whether a stream of one of `slots` workers goes to a file and not to the console.
[[nodiscard]] bool redirects_to_files(const OutputConfig& output, int slots);

}  // namespace ddprun::agent
