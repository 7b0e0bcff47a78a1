#pragma once
// The files of tests/data: where they are, and their text.

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace graphpipe::tests {

/// The path of a file or folder under tests/data, by its name there.
inline std::string data_path(const std::string& name) {
  return std::string(GRAPHPIPE_SOURCE_DIR "/tests/data/") + name;
}

/// The text of a file under tests/data. A file that cannot be read fails the test.
inline std::string read_data(const std::string& name) {
  std::ifstream in(data_path(name), std::ios::binary);
  CAPTURE(name);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace graphpipe::tests
