#pragma once
// Output and JsonFile: write the figures to stdout and to the file of --json.

#include <cstdio>
#include <memory>
#include <string>

namespace ddp::bench {

/// Writes to stdout. Reports once on stderr if that fails.
class Output {
public:
    /// Writes all of `text` at once.
    void write(const std::string& text);
    [[nodiscard]] bool failed() const { return failed_; }

private:
    bool failed_ = false;
};

/// Owns the file of --json. It is opened before the measurement, so that an error shows at once, and written at the
/// end: until then an old file is unchanged.
class JsonFile {
public:
    /// Returns why the file cannot be opened; empty if it is open.
    [[nodiscard]] std::string open(const std::string& name);
    /// Returns why the file could not be written; empty if it was.
    [[nodiscard]] std::string write(const std::string& text);

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ddp::bench
