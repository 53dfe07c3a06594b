#pragma once
// Library: a shared library that is opened at run time, so that the program starts on machines without it.

#include <dlfcn.h>

#include <string>
#include <vector>

#include "support/user_error.hpp"

namespace train {

class Library {
public:
    /// Opens the first of `files` that can be opened. It stays open until the process ends.
    explicit Library(const std::vector<std::string>& files) {
        for (const std::string& file : files) {
            handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
            if (handle_ != nullptr) return;
            const char* const problem = ::dlerror();
            problems_ += concat(problems_.empty() ? "" : "; ", problem != nullptr ? problem : file);
        }
    }

    [[nodiscard]] bool is_open() const { return handle_ != nullptr; }
    /// Returns why none of the files could be opened.
    [[nodiscard]] const std::string& problems() const { return problems_; }

    /// Sets `function` to the library's function of this name. Throws UserError if it has none.
    template <typename Function>
    void bind(Function*& function, const char* name) const {
        function = reinterpret_cast<Function*>(::dlsym(handle_, name));
        if (function == nullptr) throw UserError(concat(::dlerror(), ". Install a newer version of the library"));
    }

private:
    void* handle_ = nullptr;
    std::string problems_;
};

}  // namespace train
