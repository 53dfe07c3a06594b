// Loads two shared objects that use the library, lets them work in turns, and catches what they throw.
// usage: host local|global PLUGIN PLUGIN      prints "2 2 2" for two ranks: two sums, and the errors it caught
#include <dlfcn.h>
#include <ddp/error.hpp>

#include <array>
#include <cstdio>
#include <string_view>

template <typename Function>
Function* find(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const int scope = argv[1] == std::string_view("global") ? RTLD_GLOBAL : RTLD_LOCAL;
    std::array<void*, 2> plugins{dlopen(argv[2], RTLD_NOW | scope), dlopen(argv[3], RTLD_NOW | scope)};
    std::array<int, 2> sums{};
    int caught = 0;
    for (void* const plugin : plugins) {
        if (plugin == nullptr) {
            std::fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        find<void()>(plugin, "join")();
    }
    for (int round = 0; round < 10; ++round)
        for (std::size_t i = 0; i < plugins.size(); ++i) sums[i] = find<int()>(plugins[i], "sum_of_ones")();
    for (void* const plugin : plugins) {
        try {
            find<void()>(plugin, "fail")();
        } catch (const ddp::Error& error) {
            caught += error.code() == ddp::ErrorCode::InvalidArgument ? 1 : 0;
        }
    }
    for (void* const plugin : plugins) find<void()>(plugin, "leave")();
    for (void* const plugin : plugins) dlclose(plugin);
    std::printf("%d %d %d\n", sums[0], sums[1], caught);
}
