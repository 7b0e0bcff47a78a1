// What data must be, and whether they are: headers of .npy files, the table of a generated folder, ids and numbers.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "wire/check_data.h"
#include "wire/npy_header.h"
#include "wire/scan_numbers.h"

using namespace graphpipe;
using namespace graphpipe::wire;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
template <typename T>
std::string as_text(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string out = std::string("\x93NUMPY") + version + '\0';
  const auto length = static_cast<unsigned>(header.size());
  out += static_cast<char>(length & 255);
  out += static_cast<char>(length >> 8);
  if (version > 1) out += std::string(2, '\0');
  return out + header + data;
}
std::string npy(const std::string& header, size_t data_bytes, char version = 1) {
  return npy(header, std::string(data_bytes, 'x'), version);
}
template <typename T>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<T>& elements) {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}", as_text(elements));
}

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "graphpipe-data-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path + "/" + name, std::ios::binary) << content;
  }
  std::string path;
};

// Two inputs and a label, as a language model has them, and a mask that all samples share.
const DataTable kTable{.batch = 2,
                       .entries = {{.name = "tokens", .type = ElementType::kInt64, .dims = {1, 3}, .ids = {-5, 5}},
                                   {.name = "label",
                                    .type = ElementType::kInt64,
                                    .dims = {1},
                                    .ids = {.low = 0, .high = 4, .has_ignored = true, .ignored = -100}},
                                   {.name = "mask", .batch_axis = -1, .dims = {2, 2}, .ids = {}}}};

struct LanguageData : Folder {
  LanguageData() {
    write("data.txt", print_data_table(kTable));
    write("tokens.npy", npy<int64_t>("<i8", "(4, 3)", {0, 1, 2, 3, 4, -5, 0, 0, 0, 0, 0, 0}));
    write("label.npy", npy<int64_t>("<i8", "(4,)", {3, -100, 0, 1}));
    write("mask.npy", npy<float>("<f4", "(2, 2)", {0, 0, 0, 0}));
  }
  Diagnostics check(int64_t steps = 2) const { return check(DataUse{.steps = steps}); }
  Diagnostics check(const DataUse& use) const { return check_data_folder(path, path, use); }
};

bool has(const Diagnostic& problem, const std::string& part) {
  return to_line(problem).find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(".npy headers are read") {
  const auto read = [](const std::string& file) { return read_npy_header(bytes_of(file), "x").value(); };
  const NpyHeader header = read(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3, 2), }\n", 48));
  CHECK(header.type == ElementType::kInt64);
  CHECK(header.dims == std::vector<int64_t>{3, 2});
  CHECK(read(npy("{'descr':'|b1','fortran_order':False,'shape':(5,)}", 5, 2)).dims == std::vector<int64_t>{5});
  CHECK(read(npy("{'descr':'<f4','fortran_order':False,'shape':()}", 4)).dims.empty());
}

TEST_CASE("a file without samples is refused in these words") {
  const LanguageData data;
  CHECK(data.check().empty());
  data.write("label.npy", npy<int64_t>("<i8", "(0,)", {}));
  const Diagnostics problems = data.check();
  REQUIRE(problems.size() == 1);
  CHECK(has(problems.front(), "label.npy"));
  CHECK(has(problems.front(), "it holds no samples; write samples into it, or leave it out"));
}

TEST_CASE("malformed and hostile .npy files are refused") {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  CHECK(read_npy_header(bytes_of(npy(good, 12)), "x").ok());
  const auto turned =
      read_npy_header(bytes_of(npy("{'descr': '>i8', 'fortran_order': False, 'shape': (3,), }", 24)), "x");
  CHECK(to_line(turned.problems().front()).find("big-endian") != std::string::npos);
  for (const std::string& file :
       {std::string(), std::string("\x93NUMPY"), npy(good, 11), npy(good, 13), npy(good, 12, 9),
        npy("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", 12),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", 12),
        npy("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }", 12),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", 12),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", 12),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 12),
        npy("{'descr': '<f4', 'fortran_order': False}", 12),
        npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", 12),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} + 1", 12),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3", 12), npy("", 12), npy(good, 12).substr(0, 30)}) {
    CAPTURE(file);
    CHECK_FALSE(read_npy_header(bytes_of(file), "x").ok());
  }
}

TEST_CASE("a table of data reads back as it was printed, names of any bytes included") {
  DataTable table = kTable;
  table.entries[0].name = std::string("a b%\n\0\xff", 7);
  table.draws_random = true;
  table.scales_loss = true;
  table.whole_steps = true;
  table.divides_main_weights = true;
  table.together = {{2, 4}, {3, 3, true}};
  table.tied_names = {"head.weight", "a b"};
  table.entries[1].dims = {2, 7};
  table.entries[1].batch_axis = 1;
  CHECK(parse_data_table(print_data_table(table)) == table);
  const std::string good =
      "graphpipe-data 3\nbatch 2\nrandom no\nscaled no\nsteps any\ntogether 2 of 4\ninput x int64 axis 0 [1,3] ids "
      "[0,4) ignored "
      "-1\n";
  CHECK(parse_data_table(good).has_value());
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"data 3", "data 2"},    {"batch 2", "batch 0"},      {"random no", "random 1"},
           {"scaled no", "scaled"}, {"steps any", "steps some"}, {"together 2", "together 1"},
           {"2 of 4", "2 of 1"},    {"2 of 4", "2 4"},           {"2 of 4", "2 of 4 often"},
           {"int64", "int65"},      {"axis 0", "axis 2"},        {"axis 0", "axis x"},
           {"[1,3]", "[1,-3]"},     {"[1,3]", "[0,3]"},          {"[1,3]", "1,3"},
           {"[0,4)", "[4,4)"},      {"ignored -1", "ignored"},   {"ignored -1", "other -1"},
           {"int64", "float32"},    {"input", "output"},         {"x ", "%4 "},
           {"-1\n", "-1"}}) {
    CAPTURE(to);
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    CHECK_FALSE(parse_data_table(bad).has_value());
  }
}

TEST_CASE("data that fit have no problems") {
  const LanguageData data;
  CHECK(data.check().empty());
  CHECK(data.check(1'000'000'000'000).empty());
}

TEST_CASE("all problems of all files are told at once, each with its file") {
  const LanguageData data;
  std::filesystem::remove(data.path + "/mask.npy");
  data.write("tokens.npy", npy<int64_t>("<i8", "(4, 2)", {0, 1, 2, 3, 4, 0, 0, 0}));
  data.write("label.npy", npy<float>("<f4", "(4,)", {0, 1, 2, 3}));
  const Diagnostics problems = data.check();
  REQUIRE(problems.size() == 3);
  CHECK(has(problems[0], "'tokens.npy': it holds int64[4,2]; the model takes int64[1,3] with any number of samples"));
  CHECK(has(problems[1], "'label.npy': it holds float32[4]; the model takes int64[1]"));
  CHECK(has(problems[2], "'mask.npy': the data folder has no such file"));
  for (const Diagnostic& problem : problems) CHECK(exit_code_of(problem.code) == 3);
  const Diagnostics missing = check_data_folder(data.path, data.path + "/missing", {});
  REQUIRE(missing.size() == 1);
  CHECK(has(missing[0], "it is not a folder"));
}

TEST_CASE("files of different numbers of samples are refused, with all numbers") {
  const LanguageData data;
  data.write("label.npy", npy<int64_t>("<i8", "(3,)", {3, 0, 0}));
  const Diagnostics problems = data.check();
  REQUIRE(problems.size() == 1);
  CHECK(has(problems[0], "different numbers of samples: 'tokens.npy' 4, 'label.npy' 3"));
}

TEST_CASE("an id of no row is named with its row and column, among the samples that the steps read") {
  const LanguageData data;
  data.write("tokens.npy", npy<int64_t>("<i8", "(4, 3)", {0, 1, 2, 3, 4, -5, 0, 5, 0, 0, 0, 0}));
  data.write("label.npy", npy<int64_t>("<i8", "(4,)", {3, -100, 0, -1}));
  CHECK(data.check(1).empty());
  const Diagnostics problems = data.check(2);
  REQUIRE(problems.size() == 2);
  CHECK(has(problems[0], "'tokens.npy': row 2, column 1 (from 0) is 5; the model takes from -5 to 4"));
  CHECK(has(problems[1], "'label.npy': row 3 (from 0) is -1; the model takes from 0 to 3, or -100"));
}

TEST_CASE("data whose end lies within a step are used, with one note where a step meets it") {
  const LanguageData data;
  data.write("tokens.npy", npy<int64_t>("<i8", "(3, 3)", {0, 1, 2, 3, 4, -5, 0, 0, 0}));
  data.write("label.npy", npy<int64_t>("<i8", "(3,)", {3, -100, 0}));
  CHECK(data.check(1).empty());
  const Diagnostics notes = data.check(2);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].severity == Severity::kNote);
  CHECK(has(notes[0], "3 samples, which the batch of 2 does not divide"));
}

TEST_CASE("numbers that are not finite are found in every format and at every place of a block") {
  for (const size_t place : {0u, 1023u, 1024u, 2999u}) {
    for (const float number : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> floats(3000, std::numeric_limits<float>::max());
      std::vector<double> doubles(3000, std::numeric_limits<double>::lowest());
      CHECK_FALSE(first_not_finite(ElementType::kFloat32, bytes_of(as_text(floats))));
      CHECK_FALSE(first_not_finite(ElementType::kFloat64, bytes_of(as_text(doubles))));
      floats[place] = number;
      doubles[place] = number;
      CHECK(first_not_finite(ElementType::kFloat32, bytes_of(as_text(floats))) == place);
      CHECK(first_not_finite(ElementType::kFloat64, bytes_of(as_text(doubles))) == place);
      const std::string name = not_finite_name(ElementType::kFloat32, bytes_of(as_text(floats)), place);
      CHECK((name == "infinite") == std::isinf(number));
    }
  }
  // The largest number, infinity and a NaN of the 16-bit formats.
  const std::vector<uint16_t> half{0x7bff, 0xfc00, 0x7e00}, bfloat{0x7f7f, 0xff80, 0x7fc0};
  CHECK(first_not_finite(ElementType::kFloat16, bytes_of(as_text(half))) == 1);
  CHECK(first_not_finite(ElementType::kBFloat16, bytes_of(as_text(bfloat))) == 1);
  CHECK(std::string(not_finite_name(ElementType::kFloat16, bytes_of(as_text(half)), 2)) == "not a number (NaN)");
  CHECK(std::string(not_finite_name(ElementType::kBFloat16, bytes_of(as_text(bfloat)), 2)) == "not a number (NaN)");
  CHECK_FALSE(first_not_finite(ElementType::kInt32, bytes_of(as_text(std::vector<int32_t>{0x7f800000}))));
  const std::vector<int64_t> dims{2, 2};
  const std::vector<float> matrix{0, 1, NAN, 2};
  CHECK(find_not_finite(ElementType::kFloat32, dims, bytes_of(as_text(matrix))) ==
        "element [1,0] is not a number (NaN)");
}

TEST_CASE("ids are checked in every integer type") {
  const IdBounds bounds{.low = 0, .high = 3, .has_ignored = true, .ignored = -1};
  const auto first = [&](ElementType type, auto elements) {
    return first_out_of_bounds(type, bytes_of(as_text(elements)), bounds);
  };
  CHECK(first(ElementType::kInt64, std::vector<int64_t>{2, -1, 3}) == 2);
  CHECK(first(ElementType::kInt32, std::vector<int32_t>{2, -2}) == 1);
  CHECK(first(ElementType::kInt16, std::vector<int16_t>{300}) == 0);
  CHECK(first(ElementType::kInt8, std::vector<int8_t>{-1, 0, 1, 2, 127}) == 4);
  CHECK(first(ElementType::kUInt8, std::vector<uint8_t>{0, 255}) == 1);
  CHECK_FALSE(first(ElementType::kInt64, std::vector<int64_t>{0, 1, 2, -1}));
  CHECK(first(ElementType::kInt64, std::vector<int64_t>{int64_t{1} << 32}) == 0);
}

namespace {

// `rows` rows of three zeros, or one.
std::string tokens(int64_t rows, int64_t last = 0) {
  std::vector<int64_t> ids(static_cast<size_t>(rows) * 3, 0);
  ids.back() = last;
  return npy<int64_t>("<i8", "(" + std::to_string(rows) + ", 3)", ids);
}

struct TokensInParts : LanguageData {
  TokensInParts() { std::filesystem::remove(path + "/tokens.npy"); }
};

}  // namespace

TEST_CASE("an input may lie in numbered parts or in a folder of parts") {
  const TokensInParts data;
  for (const bool in_folder : {false, true}) {
    if (in_folder) std::filesystem::create_directory(data.path + "/tokens");
    const std::string stem = in_folder ? "tokens/part-" : "tokens.0";
    data.write(stem + "0.npy", tokens(3));
    data.write(stem + "1.npy", tokens(1));
    CHECK(data.check().empty());
    data.write(stem + "1.npy", tokens(2, 5));
    const Diagnostics problems = data.check(3);
    REQUIRE(problems.size() == 2);
    CHECK(has(problems[0], "and 1 more parts 5, 'label.npy' 4"));
    CHECK(has(problems[1], "'" + stem + "1.npy': row 1, column 2 (from 0) is 5"));
    data.write(stem + "1.npy", npy<float>("<f4", "(1, 3)", {0, 0, 0}));
    REQUIRE(data.check().size() == 1);
    CHECK(has(data.check()[0], "'" + stem + "1.npy': it holds float32[1,3]"));
    for (const char* number : {"0.npy", "1.npy"}) std::filesystem::remove(data.path + "/" + stem + number);
  }
}

TEST_CASE("parts in a folder whose names are numbers come in their order, before other names") {
  const TokensInParts data;
  std::filesystem::create_directory(data.path + "/tokens");
  const std::vector<std::string> ordered = {"tokens/0.npy", "tokens/2.npy", "tokens/010.npy", "tokens/11.npy",
                                            "tokens/a.npy"};
  for (const std::string& file : ordered) data.write(file, tokens(1));
  NpyFolder files(data.path, kTable);
  const auto parts = files.open(kTable.entries.front());
  REQUIRE(parts.ok());
  std::vector<std::string> opened;
  for (const DataArray& part : *parts) opened.push_back(part.file);
  CHECK(opened == ordered);
}

TEST_CASE("parts without one of them, twice or beside another form are refused") {
  const TokensInParts data;
  data.write("tokens.0.npy", tokens(2));
  data.write("tokens.2.npy", tokens(2));
  REQUIRE(data.check().size() == 1);
  CHECK(has(data.check()[0], "'tokens.2.npy': the parts of 'tokens' are numbered from 0 without a gap"));
  CHECK(has(data.check()[0], "number 1 is missing"));
  data.write("tokens.00.npy", tokens(2));
  REQUIRE(data.check().size() == 1);
  CHECK(has(data.check()[0], "this number is there twice"));
  for (const char* file : {"tokens.00.npy", "tokens.2.npy"}) std::filesystem::remove(data.path + "/" + file);
  data.write("tokens.npy", tokens(4));
  REQUIRE(data.check().size() == 1);
  CHECK(has(data.check()[0], "the data of 'tokens' are there in two forms"));
  // Words that are no numbers make no parts.
  std::filesystem::remove(data.path + "/tokens.0.npy");
  data.write("tokens.old.npy", tokens(2));
  CHECK(data.check().empty());
}

TEST_CASE("the file of an input is no part of another, no name leads out of the folder, and a mask has no parts") {
  const LanguageData data;
  DataTable table = kTable;
  table.entries[0].name = "label.0";
  data.write("label.0.npy", tokens(4));
  NpyFolder files(data.path, table);
  CHECK(files.open(table.entries[1])->size() == 1);
  std::filesystem::create_directory(data.path + "/inner");
  data.write("inner/data.txt", "");
  NpyFolder inner(data.path + "/inner", table);
  for (const char* name : {"..", ".", "", "../x"})
    CHECK_FALSE(inner.open({.name = name, .dims = {1, 3}, .ids = {}}).ok());
  for (const char* file : {"label.0.npy", "mask.npy"}) std::filesystem::remove(data.path + "/" + file);
  for (const char* file : {"mask.0.npy", "mask.1.npy"}) data.write(file, npy<float>("<f4", "(2, 2)", {0, 0, 0, 0}));
  REQUIRE(data.check().size() == 1);
  CHECK(has(data.check()[0], "'mask.0.npy': the input has no axis of samples, so its data have no parts"));
}

TEST_CASE("rules that cannot be followed are refused, and shuffled data are looked at whole") {
  const LanguageData data;
  const auto with_table = [&](const DataTable& table, const DataUse& use) {
    data.write("data.txt", print_data_table(table));
    return data.check(use);
  };
  DataTable table = kTable;
  const auto last = [](LastBatch rule) { return DataUse{.rule = {.last_batch = rule}}; };
  table.batch = 5;
  const Diagnostics dropped = with_table(table, last(LastBatch::kDrop));
  REQUIRE(dropped.size() == 1);
  CHECK(has(dropped[0], "4 samples, fewer than the batch of 5"));
  CHECK(with_table(table, last(LastBatch::kTrain)).empty());
  table.batch = 3;  // rest 1
  table.together = {{2, 3}};
  const Diagnostics alone = with_table(table, last(LastBatch::kTrain));
  REQUIRE(alone.size() == 1);
  CHECK(exit_code_of(alone[0].code) == 2);
  CHECK(has(alone[0], "needs 2 of them together: its last micro-batch would have 1"));
  CHECK_FALSE(has_error(with_table(table, last(LastBatch::kWrap))));
  CHECK(with_table(table, evaluation_use()).empty());  // by running statistics
  table.together = {{2, 3, true}};
  REQUIRE(with_table(table, evaluation_use()).size() == 1);
  CHECK(has(with_table(table, evaluation_use())[0], "the last batch of the evaluation has 1 samples"));
  CHECK(with_table(table, last(LastBatch::kPad)).empty());
  table.together = {};
  table.whole_steps = true;
  CHECK(with_table(table, evaluation_use()).empty());
  REQUIRE(with_table(table, last(LastBatch::kTrain)).size() == 1);
  CHECK(has(with_table(table, last(LastBatch::kTrain))[0], "applies gradients of parts of the batch"));
  const DataUse too_long{.epochs = int64_t{1} << 40};
  REQUIRE(with_table(table, too_long).size() == 1);
  CHECK(has(with_table(table, too_long)[0], "lower --epochs"));
  data.write("tokens.npy", tokens(4, 5));
  CHECK(with_table(kTable, {.steps = 1}).empty());
  CHECK(with_table(kTable, {.steps = 1, .rule = {.shuffle = true}}).size() == 1);
  CHECK(with_table(kTable, {.epochs = 1}).size() == 1);
}

TEST_CASE("smaller samples are filled up at the end of each axis") {
  const std::string array = as_text<int16_t>({1, 2, 3, 4, 5, 6});
  std::string padded(2 * 2 * 4 * sizeof(int16_t), '\0');
  const std::vector<int64_t> from{2, 1, 3}, to{2, 2, 4};
  copy_padded(bytes_of(array), from, as_text<int16_t>({-1}), to,
              std::as_writable_bytes(std::span(padded.data(), padded.size())));
  CHECK(padded == as_text<int16_t>({1, 2, 3, -1, -1, -1, -1, -1, 4, 5, 6, -1, -1, -1, -1, -1}));
}

TEST_CASE("only inputs with a fill may be smaller, and their ids are checked where they lie") {
  LanguageData data;
  data.write("tokens.npy", npy<int64_t>("<i8", "(4, 2)", {0, 1, 2, 3, 4, -5, 0, 7}));
  const auto check = [&](const std::vector<Padding>& paddings) {
    return check_data_folder(data.path, data.path, {.steps = 2}, paddings);
  };
  REQUIRE(check({}).size() == 1);
  CHECK(has(check({})[0], "--pad NAME=NUMBER"));
  const Diagnostics beyond = check({{"tokens", 0}});
  REQUIRE(beyond.size() == 1);
  CHECK(has(beyond[0], "row 3, column 1 (from 0) is 7"));
  data.write("tokens.npy", npy<int64_t>("<i8", "(4, 2)", {0, 1, 2, 3, 4, -5, 0, 4}));
  CHECK(check({{"tokens", 0}}).empty());
  data.write("tokens.npy", npy<int64_t>("<i8", "(2, 4)", {0, 1, 2, 3, 4, -5, 0, 4}));
  CHECK(has(check({{"tokens", 0}})[0], "or smaller"));
}

TEST_CASE("a padding is refused that the plan cannot use") {
  const auto refusal = [](const Padding& padding) {
    const Result<DataTable> table = with_paddings(kTable, {padding});
    REQUIRE(!table.ok());
    return to_line(table.problems()[0]);
  };
  CHECK(refusal({"token", 0}).find("'tokens', 'label', 'mask'") != std::string::npos);
  CHECK(refusal({"tokens", 5}).find("no row or class") != std::string::npos);
  CHECK(refusal({"tokens", 0.5}).find("int64") != std::string::npos);
  CHECK(with_paddings(kTable, {{"label", -100}, {"mask", -1e9}}).ok());
  CHECK(with_paddings(kTable, {{"label", -100}, {"label", -100}}).ok());
  CHECK_FALSE(with_paddings(kTable, {{"label", -100}, {"label", 0}}).ok());
  std::vector<Padding> read;
  CHECK(read_padding("a=b=-100", read));
  CHECK(read_padding("mask=0.25", read));
  CHECK(read == std::vector<Padding>{{"a=b", -100}, {"mask", 0.25}});
  CHECK(write_paddings(read) == "a=b=-100\nmask=0.25");
  // No digit is lost on the way to the programs, and no whole number that a double does not hold.
  std::vector<Padding> exact, again;
  for (const char* word : {"image=-2.1179039", "id=9007199254740991", "x=1e300", "y=1e-7"})
    CHECK(read_padding(word, exact));
  for (const Padding& padding : exact) CHECK(read_padding(write_paddings({padding}), again));
  CHECK(again == exact);
  CHECK(write_paddings({exact[1]}) == "id=9007199254740991");
  CHECK(refusal({"label", 1e300}).find("int64") != std::string::npos);
  for (const char* word : {"=1", "a", "a=", "a=x", "a=inf", "a=1e999"}) CHECK_FALSE(read_padding(word, read));
}
