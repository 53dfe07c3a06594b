#pragma once
// Where the figures go: stdout, and a file for --json.

#include <cstdio>
#include <memory>
#include <string>

namespace ddp::bench {

/// stdout. When it cannot be written, that is said once on stderr.
class Output {
public:
    /// All of `text`, at once.
    void write(const std::string& text);
    [[nodiscard]] bool failed() const { return failed_; }

private:
    bool failed_ = false;
};

/// The file of --json: opened before anything is measured, written at the end. Until then an old one is whole.
class JsonFile {
public:
    /// Empty, or why it cannot be opened.
    [[nodiscard]] std::string open(const std::string& name);
    /// Empty, or why it could not be written.
    [[nodiscard]] std::string write(const std::string& text);

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ddp::bench
