// Files that a program reads: .npy, safetensors, digests. Hostile bytes are refused, never followed.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/error.h"
#include "runtime/io/data.h"
#include "runtime/io/output_file.h"
#include "runtime/io/safetensors.h"
#include "runtime/io/sha256.h"
#include "runtime/io/sha256_blocks.h"
#include "runtime/io/tensor_proto.h"
#include "runtime/tensors.h"

using namespace graphpipe::runtime;

namespace {

std::span<const std::byte> bytes_of_text(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string npy(const std::string& header, size_t data_bytes, char version = 1) {
  std::string out = std::string("\x93NUMPY") + version + '\0';
  const auto length = static_cast<unsigned>(header.size());
  out += static_cast<char>(length & 255);
  out += static_cast<char>(length >> 8);
  if (version > 1) out += std::string(2, '\0');
  out += header;
  for (size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i);
  return out;
}

std::string safetensors(const std::string& header, size_t data_bytes) {
  std::string out(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data_bytes, 'x');
}

struct Folder {
  Folder() : path("/tmp/graphpipe_files_" + std::to_string(getpid())) { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

constexpr DimRow kBatchOf2[] = {{1, 1}, {2, 0}};
constexpr DimRow kColumns[] = {{2, 0}, {1, 1}};

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

}  // namespace

TEST_CASE("SHA-256 of the standard's examples") {
  CHECK(sha256_hex(bytes_of_text("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex(bytes_of_text("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex(bytes_of_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(bytes_of_text(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("safetensors written are read back, also names that JSON must escape") {
  const Folder folder;
  const std::string path = folder.path + "/w.safetensors";
  const at::Tensor a = at::arange(6, at::TensorOptions().dtype(at::kFloat)).view({2, 3});
  const at::Tensor b = at::arange(3, at::TensorOptions().dtype(at::kLong));
  const std::string odd = "a \"quoted\\\" \xc3\xa4 <name>\n";
  write_safetensors(path, {{"a.weight", a.t()}, {odd, b}, {"empty", at::empty({0, 4})}});
  const Safetensors file(path);
  REQUIRE(file.find("a.weight") != nullptr);
  CHECK(at::equal(file.view(*file.find("a.weight")), a.t()));
  REQUIRE(file.find(odd) != nullptr);
  CHECK(at::equal(file.view(*file.find(odd)), b));
  CHECK(file.find("empty")->dims == std::vector<int64_t>{0, 4});
  CHECK(file.find("missing") == nullptr);
  CHECK(file.tensors().size() == 3);
  CHECK_THROWS_AS(write_safetensors(folder.path + "/no/such/folder", {}), RunError);
}

TEST_CASE("malformed and hostile safetensors are refused") {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK(read_safetensors_header(bytes_of_text(safetensors(one, 8)), "x").size() == 1);
  CHECK(read_safetensors_header(
            bytes_of_text(safetensors(R"({ "__metadata__": {"format": "pt"}, "a":{"shape":[],"dtype":"I8",)"
                                      R"("data_offsets":[0,1]}}  )",
                                      1)),
            "x")
            .at("a")
            .dims.empty());
  std::string huge = safetensors(one, 8);
  huge[7] = '\x7f';
  for (const std::string& file :
       {std::string("short"), huge, safetensors(one, 7), safetensors(one, 9), safetensors("[]", 0),
        safetensors(one + "x", 8), safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
        safetensors(R"({"a":{"dtype":"X9","shape":[2],"data_offsets":[0,8]}})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[2]}})", 8), safetensors(R"({"a":1})", 8),
        safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                    6),
        safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                    R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                    8),
        safetensors("{\"a\\ud800\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8)}) {
    CAPTURE(file);
    CHECK_THROWS_AS(read_safetensors_header(bytes_of_text(file), "x"), RunError);
  }
}

namespace {

// The data of one input, two integers per sample.
std::unique_ptr<Data> open_folder(const std::string& folder, const std::string& name, int64_t batch,
                                  const graphpipe::wire::OrderRule& rule = {}, bool reads_ahead = false) {
  const graphpipe::wire::DataTable table{
      .batch = batch, .entries = {{.name = name, .type = ElementType::kInt64, .dims = {1, 2}, .ids = {}}}};
  return data_folder(folder, table, batch, rule, reads_ahead);
}

}  // namespace

TEST_CASE("steps read the data in order and start again at its end") {
  const Folder folder;
  std::ofstream(folder.path + "/in_x.npy", std::ios::binary)
      << npy("{'descr':'<i8','fortran_order':False,'shape':(5, 2)}", 0) << [] {
           std::string data(80, '\0');
           for (int64_t i = 0; i < 10; ++i) std::memcpy(data.data() + 8 * i, &i, 8);
           return data;
         }();
  const auto data = open_folder(folder.path, "in/x", 4);
  const DataRow rows{"in/x", {ElementType::kInt64, kBatchOf2, 0, 1}, 0};
  CHECK(numbers(data->item(rows, 0, {0, 2})) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(numbers(data->item(rows, 1, {0, 3})) == std::vector<int64_t>{8, 9, 0, 1, 2, 3});
  CHECK(numbers(data->item(rows, 1'000'000'000'000, {1, 2})) == std::vector<int64_t>{2, 3});
  const DataRow columns{"in/x", {ElementType::kInt64, kColumns, 1, 1}, 0};
  CHECK(numbers(data->item(columns, 0, {1, 3})) == std::vector<int64_t>{2, 4, 3, 5});
  const DataRow wrong{"in/x", {ElementType::kInt32, kBatchOf2, 0, 1}, 0};
  CHECK_THROWS_AS(open_folder(folder.path, "in/x", 4)->item(wrong, 0, {0, 1}), RunError);
  CHECK_THROWS_AS(open_folder(folder.path + "/none", "in/x", 4), RunError);
}

TEST_CASE("samples are gathered in the order of their step, over the ends of parts") {
  const Folder folder;
  const auto part = [&](const std::string& name, int64_t first, int64_t rows) {
    std::string data;
    for (int64_t i = 2 * first; i < 2 * (first + rows); ++i) data.append(reinterpret_cast<const char*>(&i), 8);
    std::ofstream(folder.path + "/" + name, std::ios::binary)
        << npy("{'descr':'<i8','fortran_order':False,'shape':(" + std::to_string(rows) + ", 2)}", 0) << data;
  };
  part("x.0.npy", 0, 3);
  part("x.1.npy", 3, 1);
  part("x.2.npy", 4, 6);
  const DataRow row{"x", {ElementType::kInt64, kBatchOf2, 0, 1}, 0};
  for (const bool shuffle : {false, true}) {
    const graphpipe::wire::OrderRule rule{
        .shuffle = shuffle, .seed = 3, .last_batch = graphpipe::wire::LastBatch::kTrain};
    for (const bool reads_ahead : {false, true}) {
      const auto data = open_folder(folder.path, "x", 4, rule, reads_ahead);
      CHECK(data->rest() == 2);
      const graphpipe::wire::SampleOrder order(10, 4, rule);
      for (int64_t step = 0; step < 6; ++step) {
        std::vector<int64_t> expected;
        CHECK(data->samples_of(step) == (step % 3 == 2 ? 2 : 4));
        for (const int64_t sample : order.rows(step, {1, data->samples_of(step)})) {
          expected.push_back(2 * sample);
          expected.push_back(2 * sample + 1);
        }
        CHECK(numbers(data->item(row, step, {1, data->samples_of(step)})) == expected);
      }
      // Steps that nobody expected.
      CHECK(data->item(row, 40, {0, 1}).size(0) == 1);
      CHECK(data->item(row, 2, {0, 2}).size(0) == 2);
    }
  }
}

namespace {

// A TensorProto of int64 in raw data.
std::string tensor_proto(const std::string& name, const std::vector<int64_t>& dims,
                         const std::vector<int64_t>& elements) {
  std::string out;
  for (const int64_t dim : dims) out += std::string("\x08") + static_cast<char>(dim);
  out += std::string("\x10\x07\x42") + static_cast<char>(name.size()) + name;
  out += std::string("\x4a") + static_cast<char>(elements.size() * 8);
  return out + std::string(reinterpret_cast<const char*>(elements.data()), elements.size() * 8);
}

}  // namespace

TEST_CASE("ONNX test data: the tensors of all sets by their names, the batch axis where the model has it") {
  const Folder folder;
  for (const int set : {0, 1}) {
    const std::string place = folder.path + "/test_data_set_" + std::to_string(set);
    std::filesystem::create_directories(place);
    std::ofstream(place + "/input_0.pb", std::ios::binary)
        << tensor_proto("x", {2, 2}, {10 * set, 10 * set + 1, 10 * set + 2, 10 * set + 3});
  }
  const auto data = open_folder(folder.path, "x", 4);
  const DataRow rows{"x", {ElementType::kInt64, kBatchOf2, 0, 1}, 0};
  CHECK(numbers(data->item(rows, 0, {1, 3})) == std::vector<int64_t>{2, 3, 10, 11});
  const DataRow columns{"x", {ElementType::kInt64, kColumns, 1, 1}, 0};
  CHECK(numbers(open_folder(folder.path, "x", 4)->item(columns, 0, {1, 3})) == std::vector<int64_t>{1, 10, 3, 12});
  const DataRow absent{"label", {ElementType::kInt64, kBatchOf2, 0, 1}, 0};
  CHECK_THROWS_AS(data->item(absent, 0, {0, 1}), RunError);
  CHECK(numbers(open_folder(folder.path + "/test_data_set_1", "x", 2)->item(rows, 0, {0, 1})) ==
        std::vector<int64_t>{10, 11});
}

TEST_CASE("elements of a TensorProto may be listed one by one; what is cut short or does not fit is refused") {
  // dims 2, type float, float_data packed.
  const std::string listed = std::string("\x08\x02\x10\x01\x22\x08") + std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  const StoredTensor tensor = read_tensor_proto(bytes_of_text(listed), "x");
  CHECK(tensor.type == ElementType::kFloat32);
  CHECK(tensor.dims == std::vector<int64_t>{2});
  CHECK(tensor.bytes.size() == 8);
  for (size_t length = 1; length < listed.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(read_tensor_proto(bytes_of_text(listed.substr(0, length)), "x"), RunError);
  }
  for (const std::string& file :
       {std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01"), std::string("\x10\x08"),
        std::string("\x6a\x00", 2), std::string("\x70\x01\x10\x01"), std::string("\xff")})
    CHECK_THROWS_AS(read_tensor_proto(bytes_of_text(file), "x"), RunError);
}

TEST_CASE("synthetic data does not depend on how the batch is cut, and respects the limit") {
  const auto data = synthetic_data(8, 5);
  const DataRow floats{"x", {ElementType::kFloat32, kBatchOf2, 0, 1}, 0};
  const at::Tensor whole = data->item(floats, 0, {0, 8});
  CHECK(at::equal(data->item(floats, 3, {3, 6}), whole.narrow(0, 3, 3)));
  // Every answer is its own, although all steps have the same samples.
  data->item(floats, 1, {0, 8}).zero_();
  CHECK(at::equal(data->item(floats, 2, {0, 8}), whole));
  CHECK_FALSE(at::equal(synthetic_data(8, 6)->item(floats, 0, {0, 8}), whole));
  const DataRow classes{"y", {ElementType::kInt64, kBatchOf2, 0, 1}, 0, {0, 3}};
  bool seen[3] = {};
  for (int64_t value : numbers(data->item(classes, 0, {0, 64}))) {
    REQUIRE((value >= 0 && value < 3));
    seen[value] = true;
  }
  CHECK((seen[0] && seen[1] && seen[2]));
}

TEST_CASE("the loss divisor counts what the loss counts") {
  const Folder folder;
  std::string labels(6 * 8, '\0');
  const int64_t values[6] = {1, -100, 0, 2, -100, -100};
  std::memcpy(labels.data(), values, sizeof values);
  std::ofstream(folder.path + "/y.npy", std::ios::binary)
      << npy("{'descr':'<i8','fortran_order':False,'shape':(3, 2)}", 0) << labels;
  const auto data = open_folder(folder.path, "y", 3);
  const DataRow row{"y", {ElementType::kInt64, kBatchOf2, 0, 1}, 0};
  PlanTable plan;
  plan.batch = 3;
  CHECK(loss_divisor(plan.loss, *data, 0, {0, 3}) == 3);
  plan.loss = {.normalizer = LossRow::Normalizer::kCountedPositions, .label = row, .has_ignore_index = true};
  CHECK(loss_divisor(plan.loss, *data, 0, {0, 3}) == 3);
  CHECK(loss_divisor(plan.loss, *data, 0, {0, 1}) == 1);
  plan.loss.has_ignore_index = false;
  CHECK(loss_divisor(plan.loss, *data, 0, {0, 3}) == 6);
  // Of each pair of labels only the second can count: {-100, 2, -100}.
  static constexpr graphpipe::wire::PositionRange kSecond[] = {{1, 2}};
  plan.loss.has_ignore_index = true;
  plan.loss.counted = kSecond;
  CHECK(loss_divisor(plan.loss, *data, 0, {0, 3}) == 1);
  // Where nothing counts a training step has no loss, and a batch of an evaluation no part in it.
  static constexpr graphpipe::wire::PositionRange kFirst[] = {{0, 1}};
  plan.loss.counted = kFirst;
  plan.batch = 1;
  const auto one_by_one = open_folder(folder.path, "y", 1);
  const LossScales evaluated(plan, *one_by_one, 0, 3);
  CHECK(evaluated.total(1) == 1);
  CHECK(evaluated.total(2) == 0);
  CHECK(evaluated.divisors({2, 3}) == std::vector<double>{1});
  CHECK(evaluated.undefined() ==
        "all labels of samples [0,1) of step 3 are -100 and do not count, so their loss is undefined");
  CHECK(LossScales(plan, *one_by_one, 0, 2).undefined().empty());
  CHECK(loss_divisor(plan.loss, *data, 0, {1, 2}) == 1);
  CHECK(loss_divisor(plan.loss, *data, 0, {2, 3}) == 0);
  plan.loss = {.normalizer = LossRow::Normalizer::kSamples, .elements_per_sample = 10};
  CHECK(loss_divisor(plan.loss, *data, 0, {0, 3}) == 30);
  plan.loss.normalizer = LossRow::Normalizer::kOne;
  CHECK(loss_divisor(plan.loss, *data, 0, {0, 3}) == 1);
}

TEST_CASE("a term with labels of its own has a divisor of its own, and none of the loss's total") {
  const Folder folder;
  std::string labels(4 * 8, '\0');
  const int64_t values[4] = {1, -100, -100, -100};
  std::memcpy(labels.data(), values, sizeof values);
  std::ofstream(folder.path + "/y.npy", std::ios::binary)
      << npy("{'descr':'<i8','fortran_order':False,'shape':(2, 2)}", 0) << labels;
  const auto data = open_folder(folder.path, "y", 2);
  static const LossRow kTerms[] = {{.normalizer = LossRow::Normalizer::kCountedPositions,
                                    .label = {"y", {ElementType::kInt64, kBatchOf2, 0, 1}, 0},
                                    .has_ignore_index = true}};
  PlanTable plan;
  plan.batch = 2;
  plan.loss.terms = kTerms;
  const LossScales scales(plan, *data, 0, 2);
  CHECK(scales.divisors({0, 2}) == std::vector<double>{2, 1});
  CHECK(scales.total(0) == 2);
  CHECK(scales.undefined().empty());
  plan.batch = 1;
  const auto one_by_one = open_folder(folder.path, "y", 1);
  CHECK(LossScales(plan, *one_by_one, 0, 2).undefined() ==
        "all labels 'y' of samples [0,1) of step 2 are -100 and do not count, so their loss is undefined");
}

TEST_CASE("the updates of a step share in its mean, and add up to its sum") {
  static constexpr graphpipe::wire::SampleRange kUpdates[] = {{0, 1}, {1, 4}};
  const auto data = synthetic_data(4, 1);
  PlanTable plan;
  plan.batch = 4;
  plan.loss_updates = kUpdates;
  const LossScales mean(plan, *data, 0, 1);
  CHECK(mean.share({0, 1}) == 0.25);
  CHECK(mean.share({1, 3}) == 0.75);
  plan.loss.normalizer = LossRow::Normalizer::kOne;
  const LossScales sum(plan, *data, 0, 1);
  CHECK(sum.share({0, 1}) == 1);
  CHECK(sum.share({1, 3}) == 1);
}

TEST_CASE("the SHA-256 instructions of this CPU give what the portable code gives") {
  const Sha256Blocks of_cpu = sha256_blocks_of_cpu();
  if (of_cpu == nullptr) {
    MESSAGE("SKIP: this CPU has no instructions for SHA-256 that the runtime knows");
    return;
  }
  std::vector<unsigned char> bytes(64 * 9);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * i * 31 + i);
  for (size_t count = 0; count <= 9; ++count) {
    Sha256State portable = {1, 2, 3, 4, 5, 6, 7, 0xffffffff}, fast = portable;
    sha256_blocks(portable, bytes.data(), count);
    of_cpu(fast, bytes.data(), count);
    CHECK(portable == fast);
  }
}

TEST_CASE("a full disk ends the writing of a file and leaves the old one") {
  const Folder folder;
  const std::string path = folder.path + "/out";
  {
    OutputFile first(path);
    first.write("old");
    first.keep();
  }
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const at::Tensor large = at::arange(100'000);
  CHECK_THROWS_AS(write_safetensors(path, {{"large", large}}), RunError);
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  std::string left;
  std::ifstream(path) >> left;
  CHECK(left == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a pipe stays a pipe") {
  const Folder folder;
  const std::string path = folder.path + "/pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK_NOTHROW(check_output(path));
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  OutputFile out(path);
  out.write("through");
  out.keep();
  std::array<char, 16> read_bytes{};
  CHECK(read(reader, read_bytes.data(), read_bytes.size()) == 7);
  close(reader);
  CHECK(std::filesystem::is_fifo(path));
}

TEST_CASE("a path is tried before it is needed, and nothing stays there") {
  const Folder folder;
  CHECK_NOTHROW(check_output(folder.path + "/out"));
  CHECK_NOTHROW(check_output(""));
  CHECK(std::filesystem::is_empty(folder.path));
  CHECK_THROWS_AS(check_output(folder.path), RunError);
  CHECK_THROWS_AS(check_output(folder.path + "/missing/out"), RunError);
}
