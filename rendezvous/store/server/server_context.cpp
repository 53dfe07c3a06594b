#include "rendezvous/store/server/server_context.hpp"

#include <spdlog/spdlog.h>

namespace ddprun::store {

void ServerContext::log(std::string_view line) { spdlog::warn("{}", line); }

}  // namespace ddprun::store
