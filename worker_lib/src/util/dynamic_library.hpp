#pragma once
// DynamicLibrary: opens a library at run time and binds its functions.

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <string>

namespace ddp::detail {

/// Opens one library and binds its functions. Remembers the first function that it lacks.
class DynamicLibrary {
public:
    /// RTLD_LOCAL: its symbols must not replace those of another copy that the trainer is linked against.
    explicit DynamicLibrary(std::string name)
        : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)), name_(std::move(name)) {
        if (handle_ == nullptr) problem_ = last_error();
    }

    template <typename Function>
    void bind(Function*& function, const char* symbol) {
        if (handle_ == nullptr) return;
        function = reinterpret_cast<Function*>(::dlsym(handle_, symbol));
        if (function == nullptr && problem_.empty()) problem_ = fmt::format("{} has no function {}", file(), symbol);
    }
    /// Binds a function that the library may lack; then it becomes null.
    template <typename Function>
    void bind_if_present(Function*& function, const char* symbol) {
        if (handle_ != nullptr) function = reinterpret_cast<Function*>(::dlsym(handle_, symbol));
    }
    /// Returns the path of the file that is open; its name if the path is not known.
    [[nodiscard]] std::string file() const {
        const link_map* map = nullptr;
        const bool known = handle_ != nullptr && ::dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name != '\0';
        return known ? map->l_name : name_;
    }
    [[nodiscard]] bool opened() const { return handle_ != nullptr; }
    /// Returns the problem; empty if the library is open and has all functions.
    [[nodiscard]] const std::string& problem() const { return problem_; }

private:
    static std::string last_error() {
        const char* text = ::dlerror();
        return text != nullptr ? text : "unknown error of the dynamic linker";
    }

    void* handle_;  // never closed: NCCL and the driver have threads and exit handlers of their own
    std::string name_;
    std::string problem_;
};

}  // namespace ddp::detail
