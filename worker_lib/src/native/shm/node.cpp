#include "worker_lib/src/native/shm/node.hpp"

#include <utility>

namespace ddp::detail {

Node::Node(std::string group, std::vector<LocalRank> local, int own_index, bool is_whole_group)
    : ranks(std::move(group), std::move(local), own_index),
      progress(ranks),
      failure(ranks),
      wait(ranks, progress, failure),
      meetings(ranks, progress, failure, wait, is_whole_group),
      barrier(ranks, wait),
      shared_work(ranks, failure, wait, meetings) {}

}  // namespace ddp::detail
