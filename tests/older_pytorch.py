"""Tests whose answer changed in PyTorch 2.12 or 2.13, the version we follow. Where an older one is the oracle (a machine on which nothing can be
installed), they may fail; everything else must pass there too. file: tests of it"""

CHANGED = {
    "layers of norms show their bias": """
        test_norm_layers: test_batch_norm test_batch_norm_shapes test_batch_norm_widths test_instance_norm test_within_samples test_lazy
            test_convert_sync_batchnorm
        test_transformer: test_encoder_layer test_decoder_layer test_activations_may_be_anything test_encoder test_transformer
        test_seeds_nn: test_a_module_prints_as_a_tree
        test_programs: test_residual_network test_encoder_classifies
        test_run: test_a_program_prints_what_it_prints_with_pytorch""",
    "other random numbers in half precision, and other conversions in trunc_normal_, exponential_ and geometric_": """
        test_random_streams: test_real_samples_are_torchs test_long_streams_are_torchs test_normal_with_arrays test_mixed_calls_stay_in_step
            test_bad_states
        test_factories: test_random_tensors
        test_init: test_values_are_pytorchs_bits
        test_convolution: test_new_weights_are_torchs_also_without_channels_and_with_channels_last
        test_compat: test_made_tensors_are_pytorchs""",
    "new names": """
        test_cross_entropy: test_of_a_linear_layer test_in_chunks
        test_losses: test_modules
        test_vmap: test_rearrange test_rearrange_refuses
        test_autocast_lists: test_every_name_on_pytorchs_lists_is_on_ours
        test_compat: test_functions_under_their_older_address test_switches_of_libraries
        test_interop: test_questions_about_tensors
        test_benchmarks: test_every_case_runs_in_torch
        test_events: test_names_are_pytorchs
        test_foreach: test_new_and_in_place test_calls
        test_profile: test_activities_are_named_once_and_by_kinds_there_are test_lists_are_seen
        test_torch_function_names: test_what_was_called_is_told test_redispatch_function_asks_about_what_is_inside
        test_factory_surface: test_small_things
        test_custom_function_declarations: test_what_functions_say_of_themselves""",
    "lanczos, and the sizes and dtypes that resizing takes": """
        test_interpolate: test_bytes test_interpolate_refusals test_lanczos test_the_way_back_from_half_precision_has_full_weights
        test_memory_order: test_channels_that_lie_last_stay_so""",
    "large numbers in float8_e4m3fn": """
        test_float8: test_float32_is_rounded_to_the_same_bits test_conversions_from_and_to_every_dtype test_what_can_be_done_with_them""",
    "derivatives of aminmax and nextafter, other errors": """
        test_reductions: test_nan_and_infinity test_ties_share_the_gradient test_errors
        test_pointwise: test_dtypes_of_two_operands test_edges_of_two_operands test_digits_of_numbers
        test_autograd: test_grad
        test_custom_function_views: test_refusals
        test_refused_writes: test_words_of_refused_writes
        test_autocast: test_misuse
        test_grad_scaler: test_infinities_of_sparse_gradients_are_found
        test_nothing: test_layers_refuse_what_is_no_size
        test_autocast_lists: test_results_on_cuda_have_pytorchs_dtypes""",
    "schemas, tags and kernels of operators, what its profiler says of cycles": """
        test_schema: test_every_operator_has_pytorchs_schema test_tags_are_pytorchs
        test_library_kernels: test_a_library_takes_back_what_it_registered test_profiles_name_operators
        test_library_checks: test_profiles_are_kept_in_pytorchs_files
        test_order: test_the_profiler_sees_what_pytorchs_sees
        test_fake_tensors: test_what_would_come_out""",
    "other rounding in quantized products of CPUs with matrix units, other saturation": """
        test_dynamic_layers: test_linear_gives_pytorchs_bits
        test_quantized_tensors: test_values_beyond_the_range_stop_at_its_ends""",
}
CRASHES = "older versions end the process"  # the reason of those that are not even run
CHANGED[CRASHES] = """
        test_factories: test_ranges
        test_linalg: test_pivots_that_name_no_row"""


def changed() -> dict[tuple[str, str], str]:
    """(file, test) -> what changed."""
    found, file = {}, ""
    for reason, words in CHANGED.items():
        for word in words.split():
            if word.endswith(":"):
                file = word[:-1]
            else:
                found[file, word] = reason
    return found
