// Fuzz target: a message that a daemon receives, from an agent or ddpctl. See messages.hpp.
#include <cstdint>

#include "tests/fuzz/messages.hpp"

using namespace ddprun::protocol;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    check_message<AgentMessage>({reinterpret_cast<const char*>(data), size});
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
    return mutate<AgentMessage>(data, size, max_size, seed);
}
