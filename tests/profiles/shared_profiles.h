#pragma once
// The PipeDream profiles beside the repository, where they are there.

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "files/pipedream_profile.h"

namespace graphpipe::tests {

inline std::filesystem::path shared_data() {
  return std::filesystem::path(GRAPHPIPE_SOURCE_DIR) / ".." / "shared" / "data";
}

/// Says SKIP where the file is not there.
inline std::optional<ir::LayerGraph> pipedream_profile(const std::string& name) {
  const auto path = shared_data() / "pipedream" / (name + ".txt");
  if (!std::filesystem::exists(path)) {
    MESSAGE("SKIP: shared profiles are absent: ", name);
    return std::nullopt;
  }
  auto graph = files::read_pipedream_profile(path.string());
  REQUIRE(graph.ok());
  return std::move(*graph);
}

}  // namespace graphpipe::tests
