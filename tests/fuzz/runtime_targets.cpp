// The readers of the programs: what lies in their folders and in data folders, and what others send them.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "runtime/error.h"
#include "runtime/io/tensor_proto.h"
#include "runtime/launch/frames.h"
#include "runtime/launch/handshake.h"
#include "support/check.h"
#include "tests/fuzz/reader_checks.h"
#include "tests/fuzz/targets.h"
#include "wire/check_data.h"
#include "wire/checkpoint.h"
#include "wire/feed_text.h"
#include "wire/learning_rate.h"
#include "wire/manifest.h"
#include "wire/npy_header.h"
#include "wire/pace_plan.h"
#include "wire/pace_report.h"
#include "wire/product_table.h"
#include "wire/safetensors.h"
#include "wire/weight_parts.h"

namespace graphpipe::tests {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string number_bytes(uint64_t number, size_t width) { return {reinterpret_cast<const char*>(&number), width}; }

void run_safetensors(std::string_view input) {
  const auto index = wire::parse_safetensors(input, static_cast<int64_t>(input.size()));
  check_printable(index.problems());
  if (!index.ok()) return;
  for (const wire::TensorEntry& tensor : index->tensors) {
    GP_CHECK(tensor.offset >= 8 && tensor.length >= 0);
    GP_CHECK(tensor.offset + tensor.length <= static_cast<int64_t>(input.size()));
  }
}

std::vector<std::string> safetensors_seeds() {
  const std::string header = R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("y":{"dtype":"BOOL","shape":[],"data_offsets":[8,9]}})";
  return {number_bytes(header.size(), 8) + header + "123456789"};
}

void run_manifest(std::string_view input) {
  wire::Manifest manifest;
  std::string problem;
  const bool read = wire::parse_manifest(input, manifest, problem);
  GP_CHECK(read == problem.empty());
  if (!read) return;
  wire::Manifest again;
  GP_CHECK(wire::parse_manifest(wire::print_manifest(manifest), again, problem) && again == manifest);
  for (const wire::ManifestEntry& entry : manifest.files) {
    GP_CHECK(entry.size >= 0 && entry.sha256.size() == 64);
    GP_CHECK(!entry.path.empty() && entry.path.front() != '/' &&
             ("/" + entry.path + "/").find("/../") == entry.path.npos);
  }
}

std::vector<std::string> manifest_seeds() {
  const std::string digest(64, 'a');
  return {wire::print_manifest({.plan = digest, .files = {}}),
          wire::print_manifest({.plan = digest,
                                .files = {{.path = "weights.safetensors", .size = 12, .sha256 = digest},
                                          {.path = "stage0/part one.cpp", .size = 0, .sha256 = digest}}})};
}

// An array that is accepted covers its file exactly, and its ids can be looked at.
void run_npy(std::string_view input) {
  const Result<wire::NpyHeader> header = wire::read_npy_header(bytes_of(input), "x.npy");
  check_printable(header.problems());
  if (!header.ok()) return;
  const std::span<const std::byte> elements = bytes_of(input).subspan(header->data_offset);
  GP_CHECK(wire::byte_length(header->type, header->dims) == static_cast<int64_t>(elements.size()));
  const wire::DataArray array{.type = header->type, .dims = header->dims, .elements = elements, .file = "x.npy"};
  wire::DataEntry entry{.name = "x",
                        .type = header->type,
                        .batch_axis = header->dims.empty() ? -1 : 0,
                        .dims = header->dims,
                        .ids = {.low = -2, .high = 3, .has_ignored = true, .ignored = 100}};
  if (entry.has_samples()) entry.dims[0] = 1;
  const Status fits = wire::check_array(entry, array);
  check_printable(fits.problems());
  if (!fits.ok()) return;
  check_printable(wire::check_ids(entry, array, 0, entry.has_samples() ? header->dims[0] : 1).problems());
}

std::string npy_file(char version, std::string header, const std::string& elements) {
  header.resize(118 - (version > 1 ? 2 : 0), ' ');
  header.back() = '\n';
  return std::string("\x93NUMPY") + version + '\0' + number_bytes(header.size(), version > 1 ? 4 : 2) + header +
         elements;
}

std::vector<std::string> npy_seeds() {
  return {npy_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", std::string(24, 'a')),
          npy_file(2, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", std::string(16, '\0')),
          npy_file(3, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "\1")};
}

void run_tensor_proto(std::string_view input) {
  try {
    const runtime::StoredTensor tensor = runtime::read_tensor_proto(bytes_of(input), "input_0.pb");
    GP_CHECK(wire::byte_length(tensor.type, tensor.dims) == static_cast<int64_t>(tensor.bytes.size()));
  } catch (const runtime::RunError& error) {
    GP_CHECK(!error.diagnostics().empty());
    check_printable(error.diagnostics());
  }
}

// TensorProto by hand: dims packed and one by one, elements raw, packed and one by one.
std::vector<std::string> tensor_proto_seeds() {
  using namespace std::string_literals;
  return {"\x08\x02\x08\x01\x10\x01\x42\x01x\x4a\x08\x00\x00\x80\x3f\x00\x00\x00\x40"s,
          "\x0a\x02\x02\x01\x10\x07\x3a\x02\x05\x09"s, "\x10\x09\x28\x01"s,
          "\x0a\x01\x01\x10\x0b\x52\x08\x00\x00\x00\x00\x00\x00\xf0\x3f"s};
}

void run_data_table(std::string_view input) {
  const std::optional<wire::DataTable> table = wire::parse_data_table(input);
  if (!table) return;
  const std::optional<wire::DataTable> again = wire::parse_data_table(wire::print_data_table(*table));
  GP_CHECK(again && *again == *table);
  const auto layout = wire::feed_layout(*table, table->batch);
  if (!layout) return;
  GP_CHECK(layout->size() == table->entries.size() + 1 && layout->front() == 0);
  GP_CHECK(std::ranges::is_sorted(*layout));
}

std::vector<std::string> data_table_seeds() {
  return {
      "graphpipe-data 3\nbatch 8\nrandom no\nscaled yes\nsteps any\ntogether 2 of 4 always\n"
      "input tokens int64 axis 0 [1,16] ids [-48,48)\ninput label int64 axis 0 [1,16] ids [0,48) ignored -100\n"
      "input mask float32 axis -1 [16,16]\n",
      "graphpipe-data 3\nbatch 1\nrandom yes\nscaled no\nsteps whole\ninput a%20b bool axis 1 [3,1]\n"};
}

void run_product_table(std::string_view input) {
  const std::optional<wire::ProductTable> table = wire::parse_product_table(input);
  if (table) GP_CHECK(wire::parse_product_table(wire::print_product_table(*table)) == table);
}

std::vector<std::string> product_table_seeds() {
  return {"graphpipe-products 3\nthreads 1\nproduct 512 768 3072 n t onednn\n",
          "graphpipe-products 3\nthreads 2\nproduct 64 128 256 n t\nproduct 64 128 256 t n blas\n",
          "graphpipe-products 3\nthreads 1\nconvolution weight-gradient 8 64 32 16 15 1 0 winograd-4x4\n"};
}

void run_weight_parts(std::string_view input) {
  const std::optional<std::vector<wire::WeightPart>> parts = wire::parse_weight_parts(input);
  if (!parts) return;
  GP_CHECK(wire::parse_weight_parts(wire::print_weight_parts(*parts)) == parts);
  for (const auto& [file, tensor] : *parts) {
    GP_CHECK(file >= 0 && tensor.offset >= 0 && tensor.length == wire::byte_length(tensor.dtype, tensor.shape));
    GP_CHECK(wire::holds_weights(wire::weight_data_file(file)));
  }
}

std::vector<std::string> weight_parts_seeds() {
  return {"graphpipe-weights 1\n", "graphpipe-weights 1\npart 0 4096 float32 [2,3] a%20b\npart 1 0 int64 [] step\n"};
}

void run_checkpoint(std::string_view input) {
  wire::CheckpointRecord record;
  std::string problem;
  const bool read = wire::parse_checkpoint(input, record, problem);
  GP_CHECK(read == problem.empty());
  if (!read) return;
  wire::CheckpointRecord again;
  GP_CHECK(wire::parse_checkpoint(wire::print_checkpoint(record), again, problem) && again == record);
  GP_CHECK(wire::step_of_checkpoint(wire::checkpoint_name(record.step)) == record.step);
  for (const wire::ManifestEntry& file : record.files) GP_CHECK(file.path.find('/') == file.path.npos);
}

std::vector<std::string> checkpoint_seeds() {
  const std::string digest(64, 'c');
  return {wire::print_checkpoint({.model = digest,
                                  .plan = digest,
                                  .optimizer = "adamw",
                                  .step = 40,
                                  .seed = 7,
                                  .data = digest,
                                  .flags = {{"--shuffle", "yes"}, {"--last-batch", "pad"}},
                                  .files = {{.path = "stage0.weights.safetensors", .size = 12, .sha256 = digest}}})};
}

void run_feed(std::string_view input) {
  if (const auto offer = wire::parse_feed_offer(input))
    GP_CHECK(offer->slots >= wire::kMinFeedSlots && offer->slots <= wire::kMaxFeedSlots && offer->slot_bytes >= 0);
  if (const auto batch = wire::parse_feed_batch(input))
    GP_CHECK(wire::parse_feed_batch(text("batch ", batch->step, " ", batch->slot, "\n")).has_value());
}

std::vector<std::string> feed_seeds() {
  return {"graphpipe-feed 1\nslots 4\nslot-bytes 4096\n", "batch 7 3\n", "end\n"};
}

// What an end of a connection has been told, in pieces of a socket's own size.
class Line {
 public:
  Line() {
    std::array<int, 2> ends{};
    GP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    near_ = Descriptor(ends[0]);
    far_ = Descriptor(ends[1]);
  }
  Descriptor take_near() { return std::move(near_); }
  void say(std::string_view bytes) const { send(far_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }
  void close() { far_ = Descriptor(); }

 private:
  Descriptor near_, far_;
};

const runtime::Key kSession = runtime::key_of("a secret that the fuzzer knows, as a rank does");

// The first byte says who speaks: a stranger, whose bytes arrive as they are, or a rank whose frames carry the right
// MAC whatever they hold: bodies, each with its size in a byte before it.
void run_control_frames(std::string_view input) {
  if (input.empty()) return;
  const bool knows_secret = (input.front() & 1) != 0;
  input.remove_prefix(1);
  Line line;
  runtime::FrameStream stream(line.take_near(), kSession, runtime::FrameStream::Side::kRankZero);
  if (!knows_secret) line.say(input);
  uint64_t sent = 0;
  while (knows_secret && !input.empty()) {
    const std::string_view body = input.substr(1, static_cast<unsigned char>(input.front()));
    const std::array<uint64_t, 2> place{static_cast<uint64_t>(runtime::FrameStream::Side::kOther), sent++};
    const auto mac = runtime::hmac_sha256(kSession, {std::as_bytes(std::span(place)), bytes_of(body)});
    line.say(number_bytes(body.size(), 4) + std::string(reinterpret_cast<const char*>(mac.data()), mac.size()) +
             std::string(body));
    input.remove_prefix(std::min(input.size(), body.size() + 1));
  }
  line.close();
  uint64_t received = 0;
  while (const std::optional<runtime::Frame> frame = stream.receive()) {
    ++received;
    size_t bytes = 0;
    for (const std::string& field : frame->fields) bytes += field.size();
    GP_CHECK(bytes <= runtime::FrameStream::kMaxBytes);
  }
  GP_CHECK(stream.over() && received <= sent);
}

std::vector<std::string> control_frames_seeds() {
  using namespace std::string_literals;
  const std::string set = "\x02\x03\0\0\0key\x05\0\0\0value"s;
  const auto said = [](const std::string& body) { return std::string(1, static_cast<char>(body.size())) + body; };
  return {"\1"s + said(set) + said("\0"s) + said("\x03\x03\0\0\0key"s), "\0\4\0\0\0"s + std::string(36, 'm')};
}

void run_pace_report(std::string_view input) {
  const std::optional<wire::PaceReport> report = wire::parse_pace_report(std::string(input));
  if (!report) return;
  for (const double number : {report->late, report->pauses, report->processor, report->sent})
    GP_CHECK(std::isfinite(number) && number >= 0);
  const std::optional<wire::PaceReport> again = wire::parse_pace_report(wire::print_pace_report(*report));
  GP_CHECK(again && *again == *report);
}

std::vector<std::string> pace_report_seeds() {
  return {wire::print_pace_report(
      {.steps = {0.25, 1e-3}, .late = 1e-5, .pauses = 12, .processor = 0.5, .sent = 4096, .transport = "shm"})};
}

// Whatever the file says, every step has a factor that a learning rate can be multiplied with.
void run_rate_points(std::string_view input) {
  const Result<wire::LearningRate> rate = wire::LearningRate::of_points(input, "rates.txt");
  check_printable(rate.problems());
  if (!rate.ok()) return;
  for (const int64_t step : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1} << 40})
    GP_CHECK(std::isfinite(rate->factor(step)));
}

std::vector<std::string> rate_points_seeds() { return {"1 0.1\n# then\n100 1\n  5000 1e-2 # last\n", "3 0.5", ""}; }

void run_pace_plan(std::string_view input) {
  const std::optional<wire::PacePlan> plan = wire::parse_pace_plan(std::string(input));
  if (!plan) return;
  const std::optional<wire::PacePlan> again = wire::parse_pace_plan(wire::print_pace_plan(*plan));
  GP_CHECK(again && *again == *plan);
  for (const std::vector<wire::PaceAction>& program : plan->programs)
    for (const wire::PaceAction& action : program)
      GP_CHECK(!wire::is_of_item(action.row.op) ||
               action.row.slot < plan->stages[static_cast<size_t>(action.row.stage)].slots);
}

std::vector<std::string> pace_plan_seeds() {
  wire::PacePlan plan{.digest = std::string(64, 'a'), .batch = 4, .links = 1};
  plan.stages = {{.slots = 2}, {}};
  plan.edges = {{.from = 0, .to = 1, .bytes = 8, .gradients = 1}};
  plan.places = {{0, 0, 0}, {1, 0, 1}};
  plan.groups = {{.bytes = 4, .stages = {0, 1}}};
  plan.ways = {{.from = 0, .to = 1, .latency = 1e-6, .byte = 1e-9}};
  plan.programs = {{{.row = {.op = wire::ActionOp::kForward, .stage = 0, .range = {0, 1}, .slot = 1}},
                    {.row = {.op = wire::ActionOp::kSendForward,
                             .stage = 0,
                             .range = {0, 1},
                             .edge = 0,
                             .peer_replica = 0,
                             .slot = 1}}},
                   {}};
  return {wire::print_pace_plan(plan)};
}

// Nobody without the key gets through the handshake, and no bytes make the answerer wait or fail.
void run_handshake(std::string_view input) {
  if (input.empty()) return;
  const bool well_begun = (input.front() & 1) != 0;
  input.remove_prefix(1);
  Line line;
  runtime::Answerer answerer(line.take_near());
  constexpr auto kPurpose = runtime::Hello::Purpose::kControl;
  if (well_begun) {
    runtime::Hello hello;
    runtime::sign(hello, kSession);
    line.say({reinterpret_cast<const char*>(&hello), sizeof hello});
    GP_CHECK(answerer.step(kSession, kPurpose, {}) == runtime::Answerer::State::kWaits && answerer.has_replied());
  }
  line.say(input);
  GP_CHECK(answerer.step(kSession, kPurpose, {}) != runtime::Answerer::State::kDone);
  line.close();
  GP_CHECK(answerer.step(kSession, kPurpose, {}) == runtime::Answerer::State::kRefused);
}

std::vector<std::string> handshake_seeds() {
  runtime::Hello hello;
  runtime::sign(hello, runtime::key_of("the secret of another run, which is as long"));
  return {std::string(1, '\0') + std::string(reinterpret_cast<const char*>(&hello), sizeof hello),
          "\1" + std::string(32, 'p'), "\1"};
}

}  // namespace

FuzzTarget fuzz_safetensors() {
  return {"safetensors",
          run_safetensors,
          safetensors_seeds,
          {"data_offsets", "[0,0]", "18446744073709551615", "F64", "\""}};
}

FuzzTarget fuzz_manifest() {
  return {"manifest",
          run_manifest,
          manifest_seeds,
          {"file ", "plan ", "graphpipe-manifest 1", "../", "/", " ", "\n", "\r", "18446744073709551616", "-1"}};
}

FuzzTarget fuzz_npy() {
  return {"npy",
          run_npy,
          npy_seeds,
          {"'descr'", "'fortran_order'", "True", "'shape'", "(", ")", ",", "'<f8'", "'>f4'", "'<u2'",
           "9223372036854775807"}};
}

FuzzTarget fuzz_tensor_proto() {
  return {"tensor_proto",
          run_tensor_proto,
          tensor_proto_seeds,
          {"\x0a", "\x10\x01", "\x4a", "\xff\xff\xff\xff\x0f", "\x22"}};
}

FuzzTarget fuzz_data_table() {
  return {
      "data_table",
      run_data_table,
      data_table_seeds,
      {"input ", "together ", " of ", " always", " ids [", ") ignored ", "float32", "axis -1", "9223372036854775807"}};
}

FuzzTarget fuzz_product_table() {
  return {"product_table",
          run_product_table,
          product_table_seeds,
          {"product ", "threads ", " n", " t", " blas", " onednn", "convolution ", " winograd-2x2", "\n", "-1",
           "9223372036854775807"}};
}

FuzzTarget fuzz_weight_parts() {
  return {"weight_parts",
          run_weight_parts,
          weight_parts_seeds,
          {"part ", "float32", "bool", "[]", "[4,4]", "%00", "\n", " ", "-1", "9223372036854775807"}};
}

FuzzTarget fuzz_checkpoint() {
  return {
      "checkpoint",
      run_checkpoint,
      checkpoint_seeds,
      {"model ", "plan ", "optimizer ", "step ", "seed ", "data ", "flag --", "file ", "\n", "18446744073709551615"}};
}

FuzzTarget fuzz_feed() {
  return {"feed",
          run_feed,
          feed_seeds,
          {"slots ", "slot-bytes ", "batch ", "graphpipe-feed 1\n", "\n", "9223372036854775807"}};
}

FuzzTarget fuzz_control_frames() {
  return {"control_frames",
          run_control_frames,
          control_frames_seeds,
          {"\xff\xff\xff\xff", std::string_view("\0\0\0\0", 4), "\1"}};
}

FuzzTarget fuzz_pace_plan() { return {"pace_plan", run_pace_plan, pace_plan_seeds, {"action ", "group ", " -1"}}; }

FuzzTarget fuzz_pace_report() {
  return {"pace_report", run_pace_report, pace_report_seeds, {"step ", "late ", " nan", " -1", "1e309"}};
}

FuzzTarget fuzz_rate_points() {
  return {
      "rate_points", run_rate_points, rate_points_seeds, {"\n", "# ", " 1e309", " nan", " -1", "9223372036854775807"}};
}

FuzzTarget fuzz_handshake() {
  return {"handshake", run_handshake, handshake_seeds, {"\1", std::string_view("\x31\x48\x50\x47", 4)}};
}

}  // namespace graphpipe::tests
