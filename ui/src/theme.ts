import { createTheme, type MantineColorsTuple } from "@mantine/core";

const ink: MantineColorsTuple = [
  "#eef3ff", "#dce4f5", "#b9c7e2", "#94a8d0", "#748dc1", "#5f7cb8", "#5474b4", "#44639f", "#39588f", "#2d4b81",
];

/** Dense and calm: small text, thin lines, one accent. */
export const theme = createTheme({
  primaryColor: "indigo",
  primaryShade: { light: 7, dark: 5 },
  colors: { ink },
  fontFamily: "Inter, ui-sans-serif, system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', sans-serif",
  fontFamilyMonospace: "ui-monospace, 'SF Mono', 'JetBrains Mono', 'DejaVu Sans Mono', monospace",
  fontSizes: { xs: "11.5px", sm: "13px", md: "14px", lg: "16px", xl: "19px" },
  defaultRadius: "sm",
  autoContrast: true,
  components: {
    Button: { defaultProps: { size: "xs", fw: 500 } },
    ActionIcon: { defaultProps: { variant: "subtle", color: "gray", size: "md" } },
    TextInput: { defaultProps: { size: "xs" } },
    NumberInput: { defaultProps: { size: "xs" } },
    Textarea: { defaultProps: { size: "xs" } },
    Select: { defaultProps: { size: "xs", comboboxProps: { shadow: "md" } } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    Checkbox: { defaultProps: { size: "xs" } },
    Switch: { defaultProps: { size: "xs" } },
    Loader: { defaultProps: { role: "status" } },
    Badge: { defaultProps: { radius: "sm", variant: "light", tt: "none", fw: 600 } },
    Tabs: { defaultProps: { keepMounted: false } },
    Notification: { defaultProps: { closeButtonProps: { "aria-label": "Dismiss" } } },
  },
});

/** Colours of types in pictures, readable on light and dark. */
export const TYPE_COLORS = [
  "#4c6ef5", "#12b886", "#f59f00", "#e64980", "#7950f2", "#15aabf", "#fd7e14", "#82c91e", "#be4bdb", "#868e96",
];
