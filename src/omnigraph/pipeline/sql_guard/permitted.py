"""The functions of Spark SQL that use their arguments, random numbers and the clock, and nothing else.

Not here, among others: functions that call Java (`java_method`, `reflect`, `try_reflect`), name users, files,
catalogs or versions (`current_user`, `input_file_name`, `current_catalog`, `version`), depend on where a task
runs (`spark_partition_id`, `monotonically_increasing_id`), or take options that name files (`from_avro`,
`from_protobuf`, `from_xml`). Functions that users register are never permitted.
"""

from __future__ import annotations

_FUNCTIONS_TEXT = """
! % & * + - / < << <= <=> = == > >= >> >>> ^ | ~ and between div if ilike in like not or regexp regexp_like
rlike when equal_null isnan isnotnull isnull coalesce ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull

abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp
expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow
power radians rand randn random rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod
try_multiply try_subtract unhex uniform width_bucket bit_count bit_get getbit shiftleft shiftright
shiftrightunsigned

add_months convert_timezone curdate current_date current_time current_timestamp current_timezone date_add
date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day
dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtime
localtimestamp make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
make_timestamp_ntz make_ym_interval minute month monthname months_between next_day now quarter second
session_window time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_nanos
timestamp_seconds to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
try_to_date try_to_time try_to_timestamp unix_date unix_micros unix_millis unix_nanos unix_seconds
unix_timestamp weekday weekofyear window window_time year

bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint typeof

ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws contains
decode elt encode endswith find_in_set format_number format_string from_base32 initcap instr is_valid_utf8
jaro_winkler_similarity lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8
mask octet_length overlay position printf quote randstr regexp_count regexp_extract regexp_extract_all
regexp_instr regexp_replace regexp_substr repeat replace right rpad rtrim sentences soundex space split
split_part startswith substr substring substring_index to_base32 to_binary to_char to_number to_varchar
translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper uuid validate_utf8
parse_url try_parse_url try_url_decode url_decode url_encode aes_decrypt aes_encrypt assert_true crc32 hash
hmac md5 raise_error sha sha1 sha2 try_aes_decrypt xxhash64

array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort
array_union arrays_overlap arrays_zip cardinality concat element_at exists filter flatten forall get reduce
reverse sequence shuffle size slice sort_array transform try_element_at zip_with map map_concat
map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with
str_to_map transform_keys transform_values named_struct struct explode explode_outer inline inline_outer
posexplode posexplode_outer stack vector_avg vector_cosine_similarity vector_inner_product
vector_l2_distance vector_norm vector_normalize vector_sum st_asbinary st_geogfromwkb st_geomfromwkb
st_setsrid st_srid

from_csv schema_of_csv to_csv from_json get_json_object json_array_length json_object_keys json_tuple
schema_of_json to_json is_valid_variant is_variant_null parse_json schema_of_variant schema_of_variant_agg
to_variant_object try_parse_json try_variant_array_append try_variant_get try_variant_insert try_variant_set
variant_array_append variant_delete variant_get variant_insert variant_set variant_strip_nulls xpath
xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string

aggregate any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
approx_top_k_combine approx_top_k_estimate array_agg avg bit_and bit_or bit_xor bitmap_and_agg
bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or
collect_list collect_set collect_union corr count count_if count_min_sketch covar_pop covar_samp every first
first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union
hll_union_agg kurtosis last last_value listagg max max_by mean median min min_by mode percentile
percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg
try_sum var_pop var_samp variance counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank
rank row_number
"""
FUNCTIONS = frozenset(_FUNCTIONS_TEXT.split())
"""Functions of expressions; those that make several rows are also relations."""

RELATIONS = frozenset({"range"})
"""Functions that are relations only."""


def is_permitted(name: str) -> bool:
    """Whether an expression may call a function of this name."""
    return name.lower() in FUNCTIONS


def is_permitted_relation(name: str) -> bool:
    """Whether a query may read what a function of this name makes."""
    return name.lower() in FUNCTIONS | RELATIONS
