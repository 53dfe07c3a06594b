#pragma once
// Chooses the interpreter of Python scripts and modules. Called by worker_command(). Reads the file system, changes
// nothing.

#include <string>

#include "common/error.hpp"
#include "common/system/process.hpp"
#include "launcher/program_search.hpp"

namespace ddprun::launcher {

/// The interpreter of a Python program.
struct Interpreter {
    std::string path;    ///< empty: the program is not run by Python
    std::string reason;  ///< of the choice, for the log and the box: "from PYTHON_EXEC", "the first python3 on PATH"
};

/// Returns the interpreter that PYTHON_EXEC names, else the one for which pip has installed this ddprun, else that of
/// the active virtual environment (VIRTUAL_ENV), else that of the active conda environment (CONDA_PREFIX), else the
/// first python3 on PATH. An environment without a usable interpreter is skipped, which is part of the reason. Errors:
/// Errc::kNotFound or Errc::kRefused, with advice.
[[nodiscard]] Result<Interpreter> find_python(const Environment& environment, const SearchPath& search);

}  // namespace ddprun::launcher
