#include "agent/workers/worker_secret.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <span>

namespace ddprun::agent {

worker_secret::Secret derive_worker_secret(std::string_view worker_key, Generation generation) {
    const std::span key(reinterpret_cast<const unsigned char*>(worker_key.data()), worker_key.size());
    return hmac_sha256(key, fmt::format("ddprun workers 1, generation {}", number(generation)));
}

Result<UniqueFd> make_secret_memory(const worker_secret::Secret& secret) {
    UniqueFd memory(::memfd_create("ddprun-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const bool made = memory && ::pwrite(memory.get(), secret.data(), secret.size(), 0) == std::ssize(secret) &&
                      ::fcntl(memory.get(), F_ADD_SEALS, worker_secret::kSeals) == 0;
    if (!made) return system_error("cannot make the memory for the workers' secret", errno);
    return memory;
}

}  // namespace ddprun::agent
