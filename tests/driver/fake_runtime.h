#pragma once
// A runtime that measures what a test says, in an environment that the test leaves as it was.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/driver/variable.h"

namespace graphpipe::tests {

inline constexpr const char* kCalibrationLines =
    "device 9.6e10 9e9 3e-6\\nkernels 8e10 16e10 6e10 4e10 2e10\\nbfloat16 32e10 18e10 9e10\\nfloat16 1e10 2e9 "
    "3e9\\nweights 7e9\\nupdate sgd 1e-7 2e-11\\nupdate adamw 1e-6 8e-11\\nlink 12e-6 1.25e-10\\n"
    "runtime 3e-8 2e-7 2e-11 5e-11\\n";

/// A runtime whose calibration program prints what it is told to and counts its starts, and a cache of its own.
struct FakeRuntime {
  explicit FakeRuntime(const std::string& lines = kCalibrationLines, int exit_code = 0)
      : folder(make_folder()),
        cache(folder / "cache"),
        runtime_variable("GRAPHPIPE_RUNTIME_DIR", folder.string()),
        cache_variable("XDG_CACHE_HOME", cache.string()),
        calibration_variable("GRAPHPIPE_CALIBRATION", std::nullopt) {
    std::filesystem::create_directories(folder / "bin");
    const std::filesystem::path program = folder / "bin/graphpipe-calibrate";
    // Of two ranks the first one prints.
    std::ofstream(program) << "#!/bin/sh\ncase \"$*\" in *'--rank 1'*|*'--rank=1'*) exit 0;; esac\necho x >> "
                           << (folder / "starts").string() << "\nprintf '" << lines << "'\nexit " << exit_code << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  ~FakeRuntime() { std::filesystem::remove_all(folder); }
  FakeRuntime(const FakeRuntime&) = delete;
  FakeRuntime& operator=(const FakeRuntime&) = delete;

  static std::filesystem::path make_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "graphpipe-machine-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    return pattern;
  }
  int starts() const {
    std::ifstream file(folder / "starts");
    int lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }
  std::filesystem::path cache_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(cache / "graphpipe")) return entry.path();
    return {};
  }

  const std::filesystem::path folder, cache;
  const Variable runtime_variable, cache_variable, calibration_variable;
};

}  // namespace graphpipe::tests
