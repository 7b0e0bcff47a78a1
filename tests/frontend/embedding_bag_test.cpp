// nn.EmbeddingBag, which torch's exporters write as a loop over bags.

#include "tests/support/count_ops.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

namespace {

const char* const kTorch = "<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"pytorch\">\n";

/// Offsets 0, 4, 8, ... of bags of 4 indices, as the exporters compute them.
const char* const kOffsets = R"(
    zero = Constant<value = int64 {0}>()
    n = Shape<end = 1>(ids)
    four = Constant<value = int64 {4}>()
    minus = Constant<value_ints = [-1]>()
    all1 = Mul(n, four)
    first = Constant<value_ints = [0]>()
    all = Squeeze(all1, first)
    flat = Reshape(ids, minus)
    starts = Range(zero, all, four)
    offsets = Concat<axis = 0>(starts, all1)
)";

std::string table() {
  std::string numbers = "0";
  for (int i = 1; i < 60; ++i) numbers += text(", ", i);
  return "<float[20,3] w = {" + numbers + "}>";
}

/// The loop of the older exporter: the results are stacked by the loop.
std::string stacking_loop(const std::string& reduction,
                          const std::string& signature = "int64[N,4] ids) => (float[N,3] y",
                          const std::string& offsets = kOffsets) {
  return std::string(kTorch) + "g (" + signature + ") " + table() + "{" + offsets + R"(
    one = Constant<value_ints = [1]>()
    most = Constant<value_ints = [9223372036854775807]>()
    ends = Slice(offsets, one, most, first, one)
    es = Shape(ends)
    count = Gather(es, zero)
    yes = Constant<value = bool {1}>()
    y = Loop(count, yes) <body = bags (int64 i, bool c) => (bool c2, float[3] r) {
      s0 = Gather(offsets, i)
      e0 = Gather(ends, i)
      b0 = Constant<value_ints = [0]>()
      s = Unsqueeze(s0, b0)
      e = Unsqueeze(e0, b0)
      bag = Slice(flat, s, e, first)
      rows = Gather(w, bag)
      r = )" +
         reduction + R"(<keepdims = 0>(rows, b0)
      c2 = Cast<to = 9>(yes)
    }>
  })";
}

}  // namespace

TEST_CASE("a loop over bags of one length is one look-up and one reduction, for each kind of reduction") {
  for (const std::string reduction : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
    CAPTURE(reduction);
    const std::string nodes = nodes_of(import_text(stacking_loop(reduction)));
    CHECK(nodes.find("i64[B,4]\n") != std::string::npos);
    CHECK(nodes.find("f32[B,4,3]\n") != std::string::npos);
    CHECK(nodes.find(reduction + "(") != std::string::npos);
    CHECK(nodes.find("keepdims=0} : f32[B,3]\n") != std::string::npos);
  }
}

TEST_CASE("the newer exporter's loop carries a counter and a sequence, and branches inside") {
  const std::string nodes = nodes_of(
      import_text(std::string(kTorch) + R"(g (int64[N,4] ids) => (float[N,3] y) )" + table() + "{" + kOffsets + R"(
    looked = Gather(w, flat)
    none = SequenceEmpty()
    start = Constant<value_int = 0>()
    bags = Size(starts)
    some = Less(start, bags)
    last, filled = Loop("", some, start, none) <body = loop (int64 i, bool c, int64 k, seq(float[1,3]) r) =>
        (bool c2, int64 k2, seq(float[1,3]) r2) {
      at = Reshape(k, minus)
      one = Constant<value = int64 {1}>()
      next = Add(at, one)
      s = Slice(offsets, at, next)
      t = Constant<value = int64 {2}>()
      after = Add(at, t)
      e = Slice(offsets, next, after)
      empty = Equal(s, e)
      axis0 = Constant<value_ints = [0]>()
      row = If(empty) <then_branch = no () => (float[1,3] a) { a = Constant<value = float[1,3] {0, 0, 0}>() },
                       else_branch = some () => (float[1,3] b) {
        last_one = Sub(bags, one)
        is_last = Equal(k, last_one)
        b = If(is_last) <then_branch = end () => (float[1,3] b1) { bag1 = Slice(looked, s, all1)
                                                                   b1 = ReduceMean(bag1, axis0) },
                         else_branch = inside () => (float[1,3] b2) { bag2 = Slice(looked, s, e)
                                                                      b2 = ReduceMean(bag2, axis0) }>
      }>
      r2 = SequenceInsert(r, row)
      k2 = Add(k, one)
      c2 = Less(k2, bags)
    }>
    y = ConcatFromSequence<axis = 0>(filled)
  })"));
  CHECK(nodes.find("f32[B,4,3]\nReduceMean(") != std::string::npos);
  CHECK(nodes.ends_with("{shape=dims[B,3]} : f32[B,3]\n"));
}

TEST_CASE("other loops are refused with a way round") {
  CHECK(reports(import_text(stacking_loop("ReduceProd")).problems(), Code::kUnsupportedOp, "nn.Embedding"));
}

TEST_CASE("bags between offsets that data give are refused, but where the file is one sample") {
  const auto bags = [](const std::string& count, bool one_sample) {
    ImportRequest request;
    request.spec.one_sample = one_sample;
    return import_text(
        stacking_loop("ReduceMean", "int64[8] flat, int64[" + count + "] starts) => (float[" + count + ",3] y", R"(
    zero = Constant<value = int64 {0}>()
    first = Constant<value_ints = [0]>()
    all1 = Shape(flat)
    offsets = Concat<axis = 0>(starts, all1)
)"),
        request);
  };
  const auto of_samples = bags("N", false);
  CHECK(of_samples.problems().size() == 1);
  CHECK(reports(of_samples.problems(), Code::kMixesSamples, "nn.EmbeddingBag does with its offsets"));
  const auto whole = bags("4", true);
  REQUIRE(whole.ok());
  CHECK(testing::count_ops(whole->graph, "Gather") == 12);  // a start, an end and the rows of each bag
  CHECK(testing::count_ops(whole->graph, "Loop") == 0);
}
