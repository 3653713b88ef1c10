import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// One flat folder: the server has one route for the files of the page.
export default defineConfig({
  base: "/ui/",
  plugins: [react()],
  build: {
    outDir: "../src/omnigraph/server/page",
    emptyOutDir: true,
    assetsDir: "",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000,
  },
});
