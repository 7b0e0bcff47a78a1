// What stages include of LibTorch is in runtime/stage_headers.txt: a header that is not there is compiled by each of
// them, with all that it includes, for seconds.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace graphpipe::ops_run {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("every header of an operator that an example of the op dictionary includes is compiled beforehand") {
  const std::vector<std::string> listed = lines_of(GRAPHPIPE_SOURCE_DIR "/runtime/stage_headers.txt");
  CHECK(std::ranges::is_sorted(listed));
  size_t operators = 0;
  for (const std::string& header : lines_of(GRAPHPIPE_CASE_FOLDER "/headers.txt")) {
    if (!header.starts_with("ATen/ops/")) continue;
    ++operators;
    CHECK_MESSAGE(std::ranges::binary_search(listed, header), header);
  }
  CHECK(operators > 100);
}

}  // namespace
}  // namespace graphpipe::ops_run
