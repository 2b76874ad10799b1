"""Mixed multimodal workloads: what is asked, when, by whom, and how the answers are judged."""
