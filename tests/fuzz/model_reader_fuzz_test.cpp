// Random damage to real models: the import ends in a graph or in diagnostics, and never in a crash.

#include <algorithm>
#include <random>

#include "frontend/wire_reader.h"
#include "frontend/wire_scan.h"
#include "ir/verify_graph.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

const char* const kSeeds[] = {
    "g (float[N,6,4] x) => (float[M,K] y) { s = Shape<end = 1>(x) r = Constant<value_ints = [-1]>() "
    "t = Concat<axis = 0>(s, r) y = Reshape(x, t) }",
    "g (float[N,3,8,8] x) => (float[N,4] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}> { a = MaxPool<kernel_shape = "
    "[2,2], strides = [2,2]>(x) axes = Constant<value_ints = [2, 3]>() "
    "b = ReduceMean<keepdims = 0>(a, axes) y = Gemm<transB = 1>(b, w) }",
    "g (float[N,6] x) => (float[N,2] y) { two = Constant<value_int = 2>() i = Constant<value_int = 1>() "
    "p = SplitToSequence<axis = 1>(x, two) y = SequenceAt(p, i) }",
};

/// Flips, inserts, removes or repeats a few bytes.
std::string damaged(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % std::max<size_t>(1, limit)); };
  for (size_t i = 0, count = 1 + below(4); i < count && !bytes.empty(); ++i) {
    const size_t at = below(bytes.size());
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(random()));
        break;
      case 3:
        bytes.erase(at, 1 + below(8));
        break;
      default:
        bytes.insert(at, bytes.substr(at, 1 + below(32)));
        break;
    }
  }
  return bytes;
}

void import_damaged(const std::string& seed_bytes, uint64_t first_seed, uint64_t count) {
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const Result<Imported> imported = import_bytes(damaged(seed_bytes, random));
    if (imported.ok()) CHECK(ir::verify_graph(imported->graph).ok());
    else CHECK(!imported.problems().empty());
    // No byte of a hostile file reaches a terminal.
    const Diagnostics said = imported.ok() ? imported->notes : imported.problems();
    for (const Diagnostic& problem : said) {
      const std::string line = to_line(problem);
      CHECK(std::all_of(line.begin(), line.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
    }
  }
}

}  // namespace

TEST_CASE("damaged small models") {
  for (const char* body : kSeeds) import_damaged(parse_onnx_text(body).SerializeAsString(), 0, 400);
}

TEST_CASE("damaged example model") {
  std::ifstream file(std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/dlrm/model.onnx", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(!bytes.empty());
  import_damaged(bytes, 1000, 60);
}

TEST_CASE("random bytes are scanned without a crash, and a scan never grows its input much") {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 64);
    const Result<WireScan> scan = scan_wire(bytes, {});
    if (scan.ok()) CHECK(scan->stripped.size() <= 40 * bytes.size() + 64);
  }
}
